package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// exports is one call at a time of a client.
var exports = inflight.Limit{Name: "exports", Max: 1, Lease: time.Second}

// service serves the echo in a bubble, of clients that may have one call in flight.
type service struct {
	*site
	t      *testing.T
	places *inflight.Limiter
}

func newService(t *testing.T, cfg grpclimit.Config, seen func(context.Context) error) *service {
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	s := &service{&site{limiter: throttr.NewRateLimit(store)}, t, inflight.New(testkit.Broken(store, nil), inflight.WithLogger(nil))}
	t.Cleanup(func() { s.places.Close() })
	cfg.InFlight = exports
	cfg.Places = s.places
	cfg.Key = grpclimit.Everyone
	cfg.KeyOf = map[string]grpclimit.KeyFunc{"exports": grpclimit.Everyone}
	s.start(t, cfg, seen)
	return s
}

// inUse returns how many places are held, after everything has happened that can.
func (s *service) inUse() uint64 {
	synctest.Wait()
	state, err := s.places.Peek(s.t.Context(), "client:keveryone", exports)
	require.NoError(s.t, err)
	return state.InUse
}

// A stream goes on for much longer than a lease. Then it ends in one of the ways in which streams end.
func TestAStreamHoldsItsPlaceUntilItEnds(t *testing.T) {
	for name, end := range map[string]func(s *service, stream grpc.ClientStream, cancel func()){
		"closed":        func(_ *service, stream grpc.ClientStream, _ func()) { stream.CloseSend() },
		"canceled":      func(_ *service, _ grpc.ClientStream, cancel func()) { cancel() },
		"disconnected":  func(s *service, _ grpc.ClientStream, _ func()) { s.conn.Close() },
		"handler fails": func(_ *service, stream grpc.ClientStream, _ func()) { exchange(stream, "the second message") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newService(t, grpclimit.Config{Messages: []throttr.Limit{{Name: "messages", Max: 1, Scale: time.Hour}}}, noError)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream, err := s.chat(ctx)
				require.NoError(t, err)
				require.NoError(t, exchange(stream, "hi"))
				time.Sleep(20 * exports.Lease)
				require.EqualValues(t, 1, s.inUse())
				_, err = s.say(t.Context(), "hi")
				require.Equal(t, codes.ResourceExhausted, status.Code(err))
				end(s, stream, cancel)
				require.Zero(t, s.inUse())
			})
		})
	}
}

func TestACallHoldsItsPlaceUntilItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s := newService(t, grpclimit.Config{}, func(context.Context) error { <-end; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.say(ctx, "hi")
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.EqualValues(t, 1, s.inUse(), "the handler does not notice, and works")
		close(end)
		require.Zero(t, s.inUse())
		mistake := func() error { panic("mistake") }
		require.Panics(t, func() { unary(t.Context(), s.server, say, func(context.Context) error { return mistake() }) })
		require.Zero(t, s.inUse())
		require.Panics(t, func() {
			streaming(s.server, &endingStream{ctx: t.Context()}, func(grpc.ServerStream) error { return mistake() })
		})
		require.Zero(t, s.inUse())
	})
}

func TestTheStatusWithoutAPlace(t *testing.T) {
	for verdict, code := range map[admission.Verdict]codes.Code{
		0: codes.ResourceExhausted, admission.Deny: codes.ResourceExhausted, admission.Unavailable: codes.Unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, grpclimit.Config{NoPlace: verdict}, noError)
			held, ok, err := s.places.TryAcquire(t.Context(), "client:keveryone", exports, 1)
			require.NoError(t, err)
			require.True(t, ok)
			trailer, err := s.say(t.Context(), "hi")
			require.Equal(t, code, status.Code(err))
			require.Equal(t, []string{"0"}, trailer.Get("x-ratelimit-remaining"))
			require.Equal(t, []string{"1"}, trailer.Get("x-ratelimit-reset"))
			require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
			details := status.Convert(err).Details()
			require.Equal(t, time.Second, details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
			if code == codes.ResourceExhausted {
				v := details[1].(*errdetails.QuotaFailure).Violations[0]
				require.Equal(t, []any{"exports", "1 at a time", "concurrent-requests", int64(1)}, []any{v.QuotaId, v.Description, v.QuotaMetric, v.QuotaValue})
			}
			held.Release()
			_, err = s.say(t.Context(), "hi")
			require.NoError(t, err)
			require.Zero(t, s.inUse())
		})
	}
}

func noError(context.Context) error { return nil }
