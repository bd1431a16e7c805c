// Package httplimit limits the rate of HTTP requests, and how many are served at a time. It is middleware for
// net/http over a [throttr.RateLimit]:
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
// Every request is counted under a key, by default the address it comes from, or under one for each limit, see
// Config.KeyOf. It counts in all limits, or in none if one of them denies it: then the response is 429 with a
// Retry-After field. Otherwise the wrapped handler serves it, and finds the decision in the request's context, see
// [FromContext]. Config.InFlight limits the requests of a key that are served at a time. Package admission says what a
// key must be.
//
// [Transport] keeps to the limits of somebody else's API.
//
// # Header fields
//
// Responses carry the header fields of the draft that [admission.Decision.PolicyField] names. Times are in
// seconds, rounded up:
//
//	RateLimit-Policy: "second";q=10;w=1, "hour";q=1000;w=3600
//	RateLimit: "second";r=9;t=1, "hour";r=949;t=1800
//
// RateLimit-Policy lists all limits of the request. Of a token bucket, q is the burst, and w the time in which an
// empty one fills. RateLimit lists those that have decided: how much remains, and when the window ends. With rolling
// algorithms, t is until the whole quota is there again; of a denial, until this very request would be served, like
// Retry-After. A client that waits for t when r is 0 is never denied. A request that costs more than a limit can ever
// grant has neither. Limits that are throttr.Unlimited have no fields. InFlight has qu in place of w, and is in
// RateLimit only if there is no place.
//
// The fields are added to those that are already there, so middleware can be stacked. Give its limits different
// names. Config.Legacy adds X-RateLimit fields, which describe the most restrictive limit of the innermost middleware.
//
// # Errors
//
// If the backend fails, Config.OnFailure decides: the default is [ServeUnlessFull]. If a limit protects something, set
// it to [Refuse]. A limit that the backend can't keep is a mistake in the program: the response is 500.
package httplimit
