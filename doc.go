// Package throttr is the Go SDK for Throttr, an in-memory rate-limit server with a
// binary protocol over TCP.
//
//	backend, err := throttr.Open(ctx, "throttr://127.0.0.1:9000")
//	if err != nil {
//		return err
//	}
//	defer backend.Close()
//
//	limiter := throttr.NewRateLimit(backend)
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//	if err != nil {
//		return err // no decision, for example because the server is down
//	}
//	if !res.Allowed {
//		return fmt.Errorf("too many requests, retry after %v", res.RetryAfter)
//	}
//
// # Rate limits
//
// A [RateLimit] counts hits in windows of fixed length. The length of a window is called its
// scale. A window belongs to a key and a scale, opens with the key's first hit and ends one
// scale later. With [WithAlgorithm], windows start and end at multiples of the scale instead,
// for all keys. In each window at most limit hits are allowed, for any number of goroutines,
// processes and machines that share the servers. Their clocks need not agree.
// docs/rate-limiting.md explains how this holds on real servers, and on which conditions.
//
// A denial is a [Result]. An error means that there is no decision; [WithPolicy] and
// [WithFallback] make one in its place. An [Observer], such as [LogTo], receives every
// decision. [RateLimit.Check] reports, when a program starts, whether the backend can keep a
// limit. [Key] makes one key of several parts.
//
// A hit is counted first and compared then, so that denied hits count. [RateLimit.Take] counts only
// what is granted. [RateLimit.TakeAll] takes from several limits or from none,
// [RateLimit.Reserve] takes an estimate whose rest can be given back, and [RateLimit.Wait] waits
// for its turn.
//
// [Open] returns a backend on Throttr servers of any value size, or in memory. Package memory
// keeps windows in the process, without a server. Module redisbackend keeps them on Redis. A
// custom [Backend] can keep them in any other store.
//
// [Entities] is a layer for applications: which entity may perform which operation, how
// often. A denial is an error there, with all that a handler needs. Package httplimit is
// middleware for net/http.
//
// # Client
//
// A [Client] speaks the protocol: it has a method for each request, and [Batch] for many
// requests in one round trip. It is safe for concurrent use. Goroutines share a few pipelined
// connections. Make one client per program, keep it, and close it at the end: [Client.Close]
// removes records that would otherwise expire on the servers.
//
// If there are several servers, each key lives on one of them, which depends on the key and
// the servers' addresses alone. Requests to a server that can't be reached fail at once with
// [ErrUnavailable] while the client tries to reach it in the background. With
// Config.LazyConnect, that applies from the start of the program on.
//
// # Value sizes
//
// A Throttr server is compiled for numbers of 1, 2, 4 or 8 bytes. The client states the size
// once, as its type argument: uint8, uint16, uint32 or uint64. [Connect] asks each server for
// its size before it sends anything else, and refuses a server of another size, because
// frames of the wrong size can crash a server. [ProbeValueSize] is for programs that learn
// the size at run time.
//
// [Open] finds the size out by itself, for programs that only limit.
//
// The largest limit is the largest value. A scale must be a whole number of a unit (1 ns to 1 h) in
// which about twice the scale and 45 s fit a value. A [*RangeError] names the size that would do.
//
// # Errors
//
// A request without a response is a [*RequestError]. It names the call, the key and the server.
// [SafeToRetry] reports whether the request has certainly not been executed, and [Timeout] whether
// time ran out. The client itself repeats only requests that were never sent and requests that
// only read.
//
// # Testing
//
// Package mockserver runs a server inside the test's process, with a clock that the test
// controls. Give the same clock to the limiter with [WithClock].
package throttr
