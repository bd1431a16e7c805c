package grpclimit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/inflight"
)

// Call is a call, or a message of a stream.
type Call struct {
	Method  string // "/package.Service/Method"
	Message any    // the request, or the message of a stream; nil when a stream begins
}

// service returns "package.Service".
func (c Call) service() string {
	service, _, _ := strings.Cut(strings.TrimPrefix(c.Method, "/"), "/")
	return service
}

// Config configures a [Server]. Limits, InFlight or Plan is required. All other fields have defaults.
type Config struct {
	// Limits apply together to calls, unary ones and streams when they begin, that have none by Methods or Plan.
	//
	// Limits of the same name, scale and algorithm over one RateLimit share their counts. Give them different
	// names if they should not.
	Limits []throttr.Limit

	// InFlight is how many calls and streams of a key are served at a time, if their Plan has no such limit of its
	// own. A call takes a place before it is counted, and holds it until the handler returns or panics, even if the
	// client has gone. The context of the handler ends with the cause inflight.ErrLost if the place is lost. If
	// there is no place, the call is denied and counts in no limit. The name is not one of Limits. Default: no
	// limit.
	InFlight inflight.Limit

	// Places holds the places of InFlight, and is required with it: one for each process and store, see
	// [inflight.New]. Close it after the server has stopped. If it can't decide, the limits apply, and then
	// FailClosed.
	Places *inflight.Limiter

	// NoPlace is what a call is for which there is no place: admission.Deny, the default, which is
	// RESOURCE_EXHAUSTED, or admission.Unavailable, which is UNAVAILABLE.
	NoPlace admission.Verdict

	// Methods are the limits of methods, in place of Limits. The names are those of methods, such as
	// "/package.Service/Method", or of services, such as "/package.Service/": the method comes first. With
	// no limits, calls are not counted, and take no place.
	Methods map[string][]throttr.Limit

	// Plan returns the limits of a call, or nil for those of Methods and Limits. With an error, these apply, and if
	// there are none, the call could not be counted.
	Plan func(context.Context, Call) (*admission.Plan, error)

	// Messages are the limits of the messages that clients send in streams, but for streams that are skipped, or have
	// no limits by Methods or Plan. A message that exceeds them ends the stream: RecvMsg returns the error, and returns
	// it again if it is called again. Default: messages are not counted.
	Messages []throttr.Limit

	// Key returns the key under which a call is counted, for a stream once, in all limits that have none in KeyOf. If
	// it is "", they count the call by its address, or, with SkipEmptyKey, not at all. The Server stores, logs and
	// traces a digest of the key. Default: the address, by Addr. Those of [Peer], [ByAddr] and [Everyone] are used as
	// they are.
	Key KeyFunc

	// KeyOf has the keys of limits by their names, InFlight's and those of Messages included, in place of Key. All
	// limits are still taken together. If a KeyFunc returns "", its limit does not apply to the call. All functions
	// are called for each call. Without Plan, each name is that of a limit. With Plan, KeyOf has the keys of all
	// limits, those of plans included, and Key is not used: calls of a plan that has another limit fail with INTERNAL,
	// which [Server.Check] foresees. Otherwise, a name that is misspelt would make a limit of an account one of an
	// address.
	KeyOf map[string]KeyFunc

	// Addr says how the address of a call is found: the default key, and that of calls whose Key is "". Default: as
	// [Peer] does.
	Addr admission.AddrConfig

	// PlainKeys stores, logs and traces all keys as they are, if they have up to 128 bytes, but for texts of Key and
	// KeyOf that look like addresses.
	PlainKeys bool

	// SkipEmptyKey leaves the limits that use Key out of calls for which Key returns "". Those of KeyOf still apply.
	SkipEmptyKey bool

	// Skip reports whether to serve a call without counting it, for example a health check. It is not asked
	// for messages. Default: no call is skipped.
	Skip func(context.Context, Call) bool

	// Cost returns what a call, or a message of a stream, counts in a limit. One in which it costs 0 does not apply to
	// it. More than 2⁶³-1 is a mistake in the program, and the status INTERNAL. Default: 1.
	Cost func(context.Context, Call, throttr.Limit) uint64

	// GiveBack reports whether a call that was served is given back, by the code of its status: for limits that count
	// failures only. That of a handler that panics is Internal. A call that its client has canceled, or whose
	// deadline has passed, stays counted, or clients could choose what they are given back. It is done in the
	// background, for a bounded number at a time; beyond that, the call stays counted, as it does if its window has
	// ended. Throttr servers take something back only for a moment. CountRefusals can't be combined with it. Default:
	// nothing is given back.
	GiveBack func(ctx context.Context, c Call, code codes.Code) bool

	// CountRefusals counts denied calls, too: see [admission.Config].
	CountRefusals bool

	// FailClosed refuses calls that could not be counted. Default: they are served, unless the backend is
	// full (throttr.ErrFull) or closed.
	FailClosed bool

	// Jitter is by how much the delay of RetryInfo may be longer than necessary, by chance: clients that
	// were denied together then do not return together. At most 24 hours. Default: 0.
	Jitter time.Duration

	// Metric is quota_metric in details: what the limits count. Default: "requests".
	Metric string

	// HideTrailers omits the trailers.
	HideTrailers bool
}

// admission returns the configuration of a Gate.
func (c *Config) admission(limits []throttr.Limit, keys map[string]admission.Key) admission.Config {
	return admission.Config{
		Limits: limits, OnlyPlans: c.Plan != nil, CountRefusals: c.CountRefusals, PlainKeys: c.PlainKeys,
		Keyed: keys, SkipEmptyKey: c.SkipEmptyKey, FailClosed: c.FailClosed, Jitter: c.Jitter,
	}
}

// has reports whether there may be a limit of a name.
func (c *Config) has(name string) bool {
	all := slices.Concat(slices.Collect(maps.Values(c.Methods))...)
	all = slices.Concat(all, c.Limits, c.Messages)
	return c.Plan != nil || name == c.InFlight.Name ||
		slices.ContainsFunc(all, func(l throttr.Limit) bool { return l.Name == name })
}

// plans returns the plans of Methods.
func (c *Config) plans(calls *admission.Gate) (map[string]*admission.Plan, error) {
	plans := make(map[string]*admission.Plan, len(c.Methods))
	for name, limits := range c.Methods {
		if !strings.HasPrefix(name, "/") || strings.Count(name, "/") != 2 {
			return nil, fmt.Errorf("%w: Methods has %q, which is neither a method, such as /package.Service/Method, "+
				"nor a service, such as /package.Service/", throttr.ErrConfig, name)
		}
		plan, err := admission.NewPlan(limits...)
		if err == nil {
			err = calls.Check(plan)
		}
		if err != nil {
			return nil, fmt.Errorf("%w (of %s)", err, name)
		}
		plans[name] = plan
	}
	return plans, nil
}
