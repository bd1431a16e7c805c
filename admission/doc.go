// Package admission decides whether a request may be served, whatever it came over. Package httplimit and
// the module grpclimit are made of it; so can be an adapter for another framework:
//
//	gate, err := admission.New(limiter, admission.Config{
//		Limits: []throttr.Limit{{Name: "minute", Max: 100, Scale: time.Minute}},
//	})
//	...
//	d := gate.Admit(ctx, admission.Request{Addr: admission.Addr(remote)})
//	defer d.Done()
//	if v := d.Verdict(); v != admission.Serve {
//		return response(v.HTTPStatus(), d.Text())
//	}
//	return next(d.Context())
//
// A [Gate] counts a request under a key, or one for each limit, in all limits of a [Plan], or in none of them if one
// denies it: in one call of the backend. If requests in flight are limited, it takes a place first, which the request
// holds until it is done. [Decision] has the results, and what an adapter responds with: a [Verdict], a text, and
// header fields.
//
// # Keys
//
// A key must be something that a client cannot choose freely: an address, or an account that was
// authenticated. A client that can invent keys has a limit of its own for each of them, and fills the
// backend.
//
// The key of a limit, of the Config or of a [Plan], is the first of these that there is:
//
//  1. Request.Keys of the name of the limit; if that is empty, the limit does not apply to the request
//  2. Config.Keyed of the name, such as [Everyone]
//  3. Request.Key
//  4. Request.Addr; with Config.SkipEmptyKey, the limit does not apply instead
//  5. "unknown", with requests of which the address is not known
//
// With Config.OnlyPlans, either all limits have one of the first two, or none has.
//
// [Addrs] finds the addresses of clients, also behind proxies. Keys of other kinds may be secret or
// personal: a Gate stores, logs and traces a digest of them, unless they are [Key.Plain].
//
// # What happens to a request
//
// A request goes through these files, in this order:
//
//  1. keyfuncs.go: the adapter makes a [Request] of what it was sent, with keys, or with an address that addr.go
//     finds. In httplimit, that is ServeHTTP in middleware.go, in grpclimit, Unary and Stream in server.go.
//  2. state.go: [Gate.Admit] begins with what is known of the request in each limit of its plan. In request.go is
//     which key it has there, if the limit applies, and in keys.go what is stored of the key.
//  3. admit.go: Admit takes the place, and reserves what the request costs of all limits in one call of the
//     throttr.RateLimit, or makes hits. In decision.go are the outcomes of the limits.
//  4. verdict.go: the outcomes and errors make a [Verdict].
//  5. fields.go: the adapter adds header fields, and serves the request with [Decision.Context], or responds.
//  6. settle.go: [Decision.Done] settles what was committed. What was given back is no longer charged.
//
// Apart from that, gate.go and plan.go check the configuration, and peek.go has [Gate.Peek] and [Gate.Reset].
//
// # Failures
//
// The policies of the throttr.RateLimit and of the inflight.Limiter come first, see [throttr.WithPolicy]. A request
// that could not be counted even so is served: an outage of the limiter is not one of the service. But it is refused if
// the backend has no room for another key (throttr.ErrFull), because clients may be able to fill it, or was closed, and
// if Config.FailClosed is set. A limit that the backend can't keep is a mistake in the program: the Verdict is then
// [Misconfigured], whatever the policies say. If the context of a request ends before it has been counted, by its
// deadline, too, it is not served: the Verdict is [Canceled]. Clients of gRPC choose their deadlines.
package admission
