// Package httplimit limits the rate of HTTP requests. It is middleware for net/http over a
// [throttr.RateLimit]:
//
//	limiter := throttr.NewRateLimit(memory.New())
//	limit, err := httplimit.New(limiter, httplimit.Config{
//		Limits: []throttr.Limit{httplimit.PerSecond(10), httplimit.PerHour(1000)},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	log.Fatal(http.ListenAndServe(":8080", limit(mux)))
//
// Every request is counted under a key, by default the address it comes from. If the request
// exceeds a limit, the response is 429 with a Retry-After field. Otherwise the wrapped handler
// serves it, and finds the decision in the request's context, see [FromContext].
//
// # Several limits
//
// A request is counted in all limits, or in none if one of them denies it: refused traffic of one
// limit uses up nothing of the others. Of 50 requests in a second with the limits above, 10 are
// served, the limit "second" denies 40, and both limits have counted 10. With Config.CountRefusals, a
// request is counted in one limit after the other, the shortest scale first, up to the one that denies
// it. A denied request never makes a window longer.
//
// A handler can give back what its request was counted, with [Decision.Refund]: for example to
// limit failed logins only.
//
// # Header fields
//
// Responses carry the header fields of draft-ietf-httpapi-ratelimit-headers-10. Times are in
// seconds, rounded up:
//
//	RateLimit-Policy: "second";q=10;w=1, "hour";q=1000;w=3600
//	RateLimit: "second";r=9;t=1, "hour";r=949;t=1800
//
// RateLimit-Policy lists all limits of the request. RateLimit lists those that have decided: how
// much remains, and when the window ends. (The package net/http writes the names as
// Ratelimit-Policy and Ratelimit. Field names are not case-sensitive.)
//
// Rolling algorithms do not end at a time. If the request is served, t is then until the whole quota is
// there again, and at most w. If it is denied, t is until this very request would be served, like
// Retry-After. A request that costs more than a limit can ever grant has neither, and limits that are
// throttr.Unlimited have no fields.
//
// The fields are added to those that are already there, so middleware can be stacked: for
// example one that counts by address around one that counts by account. Give their limits
// different names. Config.Legacy adds X-RateLimit-Limit, X-RateLimit-Remaining and
// X-RateLimit-Reset, which describe the most restrictive limit of the innermost middleware.
//
// # Keys
//
// A key must be something that a client cannot choose freely: an address, or an account that
// was authenticated. A client that can invent keys, such as API keys that nobody has checked,
// has a limit of its own for each of them, and fills the backend.
//
// A key that Config.Key returns may be secret or personal. So the middleware stores, logs and
// traces a digest of it. [ByHeader] makes the digest itself, so that a Decision does not have the
// value of the field either.
//
// [Middleware.Peek] and [Middleware.Reset] show and end the windows of a key, for example if a
// customer asks.
//
// Behind a proxy, all requests come from the address of the proxy. Use [ByAddr] with the
// addresses of the proxies and the header field that they set. ByAddr believes the part of the
// field that those proxies have written and nothing else, so a client gains nothing by sending
// the field itself.
//
// # Errors
//
// If the backend fails, the request is served by default: an outage of the limiter is not an
// outage of the site. But if the backend has no room for another key (throttr.ErrFull), the response
// is 503, because a client may be able to fill it: see [ServeUnlessFull]. If a limit protects
// something, such as a login against guessing, set Config.OnFailure to [Refuse]: a client may be able
// to make a backend fail in other ways, for example by more requests than it can count. The policies
// of the throttr.RateLimit come first, see [throttr.WithPolicy] and [throttr.WithFallback].
//
// A limit that the backend cannot keep is a mistake in the program: the error matches
// [throttr.ErrRange], [throttr.ErrScale] or [throttr.ErrUnsupported]. The response is then 500,
// whatever the policies and OnFailure say, because the limit would never hold. The
// [throttr.Observer] of the RateLimit receives the error.
package httplimit
