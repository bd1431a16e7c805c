// Package httplimit limits the rate of HTTP requests: middleware for net/http over a
// [throttr.RateLimit].
//
//	limiter := throttr.NewRateLimit(memory.New())
//	limit, err := httplimit.New(limiter, httplimit.Config{
//		Limits: []httplimit.Limit{httplimit.PerSecond(10), httplimit.PerHour(1000)},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.ListenAndServe(":8080", limit(mux))
//
// Every request is counted under a key, by default the address it comes from. If one of the
// limits is reached, it is answered with 429 and a Retry-After; otherwise it is served, and
// the handler finds the decision in the request's context, see [FromContext].
//
// # Several limits
//
// A request is counted in the limits one after the other, the shortest window first, and up
// to the first that denies it. So what is denied by a short limit does not use up a long
// one: who sends 50 requests in a second with the limits above is served 10, is denied 40
// by "second", and has used 10 of "hour". Within the limit that denies, denied requests
// count; this never makes its window longer.
//
// # Header fields
//
// Responses tell the limits in the fields of draft-ietf-httpapi-ratelimit-headers-10, times
// in seconds, rounded up:
//
//	RateLimit-Policy: "second";q=10;w=1, "hour";q=1000;w=3600
//	RateLimit: "second";r=9;t=1, "hour";r=949;t=1800
//
// RateLimit-Policy has all limits of the request, RateLimit those that it was counted in:
// how much remains, and when the window ends. (net/http writes the names as Ratelimit-Policy
// and Ratelimit; case is no matter in names of fields.) They are added to the fields that are there,
// so that middleware can be stacked, say one that counts by address around one that counts
// by account; give the limits different names then. Config.Legacy adds X-RateLimit-Limit,
// X-RateLimit-Remaining and X-RateLimit-Reset, which tell the most restrictive limit of
// the innermost middleware.
//
// # Who is a client
//
// Where there is a proxy in front, all requests come from its address: use [ByAddr] with
// the proxies' addresses and the header field that they set. A field is believed only as
// far as proxies that are named have written it, so a client gains nothing by sending the
// field itself.
//
// A key must be something that the client can't choose freely: an address, an account that
// was authenticated. Who can invent keys (an API key that nobody has checked, a path) has a
// limit of its own for each, and fills the backend.
//
// # When the backend fails
//
// By default the request is served: a site is not down because its limiter is. Where a
// limit guards something, such as a login against guessing, set Config.OnFailure to
// [Refuse]: somebody may be able to make a backend fail, say by filling it with keys. The
// throttr.RateLimit has policies of its own, which come first: [throttr.WithPolicy],
// [throttr.WithFallback].
package httplimit
