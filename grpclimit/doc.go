// Package grpclimit limits the rate of gRPC calls, and how many are served at a time. On a server, its interceptors
// count calls, and the messages of streams, with a [throttr.RateLimit]:
//
//	limit, err := grpclimit.NewServer(limiter, grpclimit.Config{
//		Limits: []throttr.Limit{{Name: "minute", Max: 100, Scale: time.Minute}},
//	})
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
//
// A client whose calls are to wait for the limits of somebody else's service calls [throttr.RateLimit.WaitAll] in an
// interceptor of its own: docs/grpc.md has one.
//
// # What a client sees
//
// A call that exceeds a limit fails with RESOURCE_EXHAUSTED. Its details are a RetryInfo, unless waiting
// does not help, and a QuotaFailure with a violation for each limit that denies: quota_id is the name of
// the limit, quota_value its Max (the burst of a token bucket), quota_metric what it counts, api_service
// the service, and quota_dimensions has the client, see [admission.Outcome.Partition].
//
// All calls that are counted have trailers, of the limit that is closest to its end:
//
//	x-ratelimit-remaining: 37
//	x-ratelimit-reset: 12          (seconds until the window ends, or a denied call can be repeated)
//	grpc-retry-pushback-ms: 11210  (of calls that are denied or UNAVAILABLE: when clients of grpc-go retry, if their
//	                               service config says so; -1: never)
//
// # Keys, limits, failures
//
// They are those of package admission, which httplimit shares: several limits count together or not at all;
// limits of one name, scale and algorithm share their counts, also with httplimit, if the keys are the same.
// The default key is the address of the peer, or the first 64 bits of an IPv6 address. Behind a proxy that
// is the address of the proxy: use [ByAddr].
//
// A handler finds the decision with [admission.FromContext], and gives back what its call counted with
// Decision.GiveBack. If a call can't be counted, because the backend has failed, it is served, unless
// Config.FailClosed is set or the backend is full or closed: then it fails with UNAVAILABLE. A limit that the backend
// can't keep is INTERNAL.
package grpclimit
