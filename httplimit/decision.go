package httplimit

import (
	"context"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// These are types of package admission, which grpclimit shares. go doc shows their fields and methods there:
//
//	go doc github.com/throttr-go/throttr/admission Decision
type (
	// Decision is the decision on a request.
	Decision = admission.Decision
	// Outcome is the result of one limit for a request.
	Outcome = admission.Outcome
	// Request is what [Middleware.Peek] and [Middleware.Reset] are asked about.
	Request = admission.Request
	// Key is the key of a request in a limit.
	Key = admission.Key
	// Plan is a set of limits for some of the clients. Make plans once, with [NewPlan], and return them from
	// Config.Plan. The zero Plan has no limits.
	Plan = admission.Plan
)

// FromContext returns the decision on the request whose context is ctx. If several middlewares
// have counted the request, it is the decision of the innermost one. FromContext returns false
// if no limit applied to the request. The caller must not modify Outcomes.
func FromContext(ctx context.Context) (Decision, bool) { return admission.FromContext(ctx) }

// NewPlan returns a plan of limits, see [admission.NewPlan].
func NewPlan(limits ...throttr.Limit) (*Plan, error) { return admission.NewPlan(limits...) }

// MustPlan is [NewPlan] for limits that are known to be valid. It panics if NewPlan returns an error.
func MustPlan(limits ...throttr.Limit) *Plan { return admission.MustPlan(limits...) }
