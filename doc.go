// Package throttr limits how often something may be done, over any number of goroutines, processes and
// machines. It is also the Go SDK for Throttr, a rate-limit server.
//
//	backend, err := throttr.Open(ctx, "memory://") // or redis://127.0.0.1:6379, throttr://127.0.0.1:9000
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
// # Limits
//
// A [Limit] is a rule, declared once, for any number of keys:
//
//	var search = throttr.Limit{Name: "search", Max: 10, Scale: time.Second, Burst: 20, Algorithm: throttr.TokenBucket}
//
//	res, err := limiter.Take(ctx, "user:42", search, 1)
//
// A count belongs to the key, and to the limit's name, scale and algorithm. Max and burst may change. Counts are
// exact, except that a [SlidingWindow] estimates: it allows less than twice Max in any interval of its scale.
// [RateLimit.Check] reports, when a program starts, what the backend can't keep.
//
// A hit is counted first and compared then, so that denied hits count, unless a single one is larger than the
// limit. [RateLimit.Take] counts only what is
// granted. (Rolling algorithms can't count what they deny: there, a hit is a take.) [RateLimit.TakeAll] takes
// of several limits or of none, [RateLimit.Reserve] takes an estimate whose rest can be given back,
// [RateLimit.Wait] waits for its turn, [RateLimit.Charge] counts whatever the limit says, and
// [RateLimit.Forget] ends what was counted. [Key] makes one key of several parts.
//
// A denial is a [Result]. An error means that there is no decision; [WithPolicy] and [WithFallback] make one
// in its place. An [Observer] receives every decision.
//
// # Backends
//
// [Open] opens a backend by a URL: in memory, on Throttr servers, or on any store whose package is imported,
// such as redisbackend. All behave alike, which package backendtest tests. Package window is for
// those who write one, package lease makes shared limits as fast as memory, package httplimit is middleware
// for net/http, and package entities limits operations of entities.
//
// # Client
//
// A [Client] speaks the protocol of Throttr servers: it has a method for each request, and [Batch] for many requests
// in one round trip. Goroutines share a few pipelined connections. Make one client per program, keep it, and close it
// at the end: [Client.Close] removes records that would otherwise expire on the servers.
//
// A server is compiled for numbers of 1, 2, 4 or 8 bytes. The client states the size once, as its type argument:
// uint8, uint16, uint32 or uint64. [Connect] asks each server for its size before it sends anything else, because
// frames of the wrong size can crash a server. [Open] finds the size out by itself. If there are several servers,
// each key lives on one of them, which depends on the key and the servers' addresses alone.
//
// A request without a response is a [*RequestError], which says whether it has certainly not been executed. The client
// itself repeats only requests that were never sent and requests that only read.
//
// Package mockserver runs a server inside the test's process. In a bubble of testing/synctest it goes by the bubble's
// clock, as limits do.
package throttr

// The package has two halves.
//
// The limiter, on any backend:
//
//	ratelimit.go    RateLimit, and the calls for a scale alone
//	decide.go       Hit, Take, Charge and Peek, and every decision, step by step
//	policy.go       while the store is away: who decides then, the fallback, lines
//	takeall.go      TakeAll; the data of a call of several takes
//	reservation.go  Reserve, and its settling
//	wait.go         Wait and WaitAll
//	limit.go        Limit, Check, Forget
//	result.go       Result
//	observer.go     events
//	key.go          Key
//
// The SDK for Throttr servers, and how backends are opened:
//
//	client.go, batch.go, ttl.go       requests
//	config.go, url.go                 settings
//	servers.go                        the servers of a client, and which one has a key
//	stats.go, inspect.go              what servers and clients say of themselves
//	list.go, subscribe.go             lists, channels
//	serverbackend.go                  the windows of a RateLimit on servers, and records that clients have left
//	open.go                           Open
