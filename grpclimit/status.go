package grpclimit

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// The trailers. The draft of the RateLimit fields forbids those in trailers.
const (
	remainingTrailer = "x-ratelimit-remaining"
	resetTrailer     = "x-ratelimit-reset"
	pushbackTrailer  = "grpc-retry-pushback-ms"
)

// refusal returns the error of a call that is not served, and nil for one that is.
func (s *Server) refusal(ctx context.Context, c Call, d *admission.Decision) error {
	code := codes.OK
	switch d.Verdict() {
	case admission.Serve:
		return nil
	case admission.Canceled:
		if errors.Is(ctx.Err(), context.Canceled) {
			return status.FromContextError(ctx.Err()).Err()
		}
		return status.FromContextError(context.DeadlineExceeded).Err()
	case admission.Misconfigured:
		return status.Error(codes.Internal, d.Text())
	case admission.Deny:
		code = codes.ResourceExhausted
	default:
		code = codes.Unavailable
	}
	st := status.New(code, d.Text())
	var details []protoadapt.MessageV1
	if d.RetryAfter < throttr.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(d.RetryAfter)})
	}
	if code == codes.ResourceExhausted {
		details = append(details, s.quotaFailure(c, d))
	}
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

// quotaFailure returns the limits that have denied a call.
func (s *Server) quotaFailure(c Call, d *admission.Decision) *errdetails.QuotaFailure {
	f := new(errdetails.QuotaFailure)
	for _, o := range d.Denied() {
		client := strings.ToValidUTF8(o.Partition(), "\uFFFD") // others can't be sent
		metric := s.cfg.Metric
		if o.Scale == 0 {
			metric = "concurrent-requests"
		}
		f.Violations = append(f.Violations, &errdetails.QuotaFailure_Violation{
			Subject:         client,
			Description:     o.Quota(),
			ApiService:      c.service(),
			QuotaMetric:     metric,
			QuotaId:         o.Name,
			QuotaDimensions: map[string]string{"client": client},
			QuotaValue:      int64(min(o.Limit, throttr.Unlimited)),
		})
	}
	return f
}

// trailer returns the trailers of a decision, or nil.
func (s *Server) trailer(d *admission.Decision) metadata.MD {
	if s.cfg.HideTrailers {
		return nil
	}
	md := metadata.MD{}
	if o := &d.Strictest; o.Name != "" && o.Known() {
		md.Set(remainingTrailer, strconv.FormatUint(o.Remaining, 10))
		if left := o.Left(); left < throttr.Never {
			md.Set(resetTrailer, strconv.FormatInt(admission.Seconds(left), 10))
		}
	}
	switch d.Verdict() {
	case admission.Deny, admission.Unavailable:
		md.Set(pushbackTrailer, pushback(d.RetryAfter))
	}
	return md
}

// pushback returns after which time a client should try again, in milliseconds, rounded up; -1: never.
func pushback(d time.Duration) string {
	if d >= throttr.Never {
		return "-1"
	}
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
