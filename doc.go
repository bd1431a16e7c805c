// Package throttr is the Go SDK for Throttr, an in-memory rate-limit server with a
// binary protocol over TCP.
//
//	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{"127.0.0.1:9000"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	limiter := throttr.NewRateLimit(client.Backend())
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//	if err != nil {
//		return err // no decision: the server is away, say
//	}
//	if !res.Allowed {
//		return fmt.Errorf("too many requests, retry after %v", res.RetryAfter)
//	}
//
// # Rate limits
//
// A [RateLimit] counts hits in windows of fixed length. A window belongs to a key and
// a scale, opens with the key's first hit and ends one scale later; or, with
// [WithAlgorithm], starts and ends at multiples of the scale for all keys. Of the hits in
// it, limit are allowed and no more, for any number of goroutines, processes and machines
// that share the servers, if their clocks differ by less than a scale. What this takes
// on a real server is told in docs/rate-limiting.md.
//
// A denial is a [Result]; an error says that there is no decision, and [WithPolicy] and
// [WithFallback] put a decision in its place. An [Observer] is told of every one, such as
// [LogTo]. Package memory keeps windows in the process, without a server; module
// redisbackend keeps them on Redis, and a [Backend] of one's own on any other store.
//
// [Entities] is for applications: who may do what, how often. A denial is an error there
// that says all that a handler needs. Package httplimit is middleware for net/http.
//
// # Client
//
// A [Client] speaks the protocol: one method per request, and [Batch] for many of them
// in one round trip. It is safe for any number of goroutines, whose requests share a
// few pipelined connections. Make one per program, keep it, and close it at the end:
// [Client.Close] removes what would otherwise expire on the servers.
//
// With several servers, a key lives on one of them, which follows from the key and the
// servers' addresses alone. Requests to one that can't be reached fail at once with
// [ErrUnavailable], until the client, which tries again by itself, has reached it.
//
// # Value sizes
//
// A Throttr server is compiled for numbers of 1, 2, 4 or 8 bytes. The client names the
// size once, as its type argument: uint8, uint16, uint32 or uint64. [Connect] asks each
// server for its size before anything else, and refuses one of another size: what a
// client of another size sends can kill a server. A program that learns the size only
// when it runs has [ProbeValueSize].
//
// A limit goes up to the largest value less 64, a scale up to as many whole units (of 1
// ns to 1 h) as a value can count. What does not fit is a [*RangeError] that names the
// size that would do.
//
// # Errors
//
// A request without an answer is a [*RequestError]. [SafeToRetry] tells whether it has
// certainly not been executed, [Timeout] whether time ran out. The client itself sends
// again only what was never sent and what only reads.
//
// # Testing
//
// Package mockserver plays a server inside the test's process, with a clock that the
// test moves. Give the same clock to the limiter with [WithClock].
package throttr
