package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// use counts one hit on servers.
func use(ctx context.Context, servers []string) error {
	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: servers})
	if err != nil {
		return err
	}
	defer client.Close()
	limiter := throttr.NewRateLimit(client.Backend())
	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
	if err != nil {
		return err
	}
	fmt.Println(res)
	return nil
}

func Example() {
	srv, err := mockserver.Start() // in real life a Throttr server, say at 127.0.0.1:9000
	if err != nil {
		panic(err)
	}
	defer srv.Close()
	if err := use(context.Background(), []string{srv.Addr()}); err != nil {
		panic(err)
	}
	// Output: allowed, 1 of 100, 99 remaining
}

// exampleServer is a mock server with a clock that moves by Advance alone, and a client of it. They live
// until end is called. The server is not parked, so that it has no records but those of the example.
func exampleServer() (srv *mockserver.Server, client *throttr.Client[uint16], end func()) {
	srv, err := mockserver.Start(mockserver.WithVirtualClock())
	if err != nil {
		panic(err)
	}
	client, err = throttr.Connect[uint16](context.Background(), throttr.Config{
		Servers: []string{srv.Addr()}, Parking: throttr.ParkingNever,
	})
	if err != nil {
		panic(err)
	}
	return srv, client, func() {
		client.Close()
		srv.Close()
	}
}

// exampleLimiter is a limiter and its clock, which moves by Advance alone.
func exampleLimiter() (*throttr.RateLimit, backendtest.Clock) {
	clock := backendtest.NewClock()
	return throttr.NewRateLimit(memory.New(memory.WithClock(clock.Now), memory.WithCleanPeriod(0))), clock
}

func ExampleRateLimit_Hit() {
	ctx := context.Background()
	limiter, clock := exampleLimiter()

	for range 4 {
		res, err := limiter.Hit(ctx, "user:42", time.Minute, 2)
		if err != nil {
			panic(err)
		}
		fmt.Println(res)
		clock.Advance(20 * time.Second)
	}
	// Output:
	// allowed, 1 of 2, 1 remaining
	// allowed, 2 of 2, 0 remaining
	// denied, 3 of 2, retry after 20s
	// allowed, 1 of 2, 1 remaining
}

func ExampleRateLimit_HitN() {
	ctx := context.Background()
	limiter, _ := exampleLimiter()

	// An upload of 4 files counts for 4. All of a hit counts, even if it is denied.
	for range 3 {
		res, err := limiter.HitN(ctx, "uploads:42", throttr.Limit{Max: 10, Scale: time.Minute}, 4)
		fmt.Println(res, err)
	}
	// Output:
	// allowed, 4 of 10, 6 remaining <nil>
	// allowed, 8 of 10, 2 remaining <nil>
	// denied, 12 of 10, retry after 1m0s <nil>
}

// Windows are counted in, read, set and ended without a decision.
func ExampleRateLimit_Get() {
	ctx := context.Background()
	limiter, clock := exampleLimiter()

	fmt.Println(limiter.Get(ctx, "user:42", time.Minute)) // there is no window
	fmt.Println(limiter.Inc(ctx, "user:42", time.Minute, 3))
	clock.Advance(45 * time.Second)
	end, err := limiter.ExpiresAt(ctx, "user:42", time.Minute)
	fmt.Println(end.Sub(clock.Now()), err)

	fmt.Println(limiter.Set(ctx, "user:42", time.Minute, 9)) // a new window, ending in a minute
	clock.Advance(50 * time.Second)
	fmt.Println(limiter.Hit(ctx, "user:42", time.Minute, 10))

	fmt.Println(limiter.Reset(ctx, "user:42", time.Minute))
	fmt.Println(limiter.Get(ctx, "user:42", time.Minute))
	limiter.Hit(ctx, "user:42", time.Second, 10)
	limiter.Hit(ctx, "user:42", time.Hour, 1000)
	fmt.Println(limiter.Delete(ctx, "user:42")) // of all scales
	// Output:
	// 0 <nil>
	// 3 <nil>
	// 15s <nil>
	// 9 <nil>
	// allowed, 10 of 10, 0 remaining <nil>
	// <nil>
	// 0 <nil>
	// 2 <nil>
}

// A bucket lets in one hit in 10 seconds, and a burst of two.
func ExampleWithAlgorithm() {
	limiter := throttr.NewRateLimit(memory.New(), throttr.WithAlgorithm(throttr.TokenBucket))
	for range 3 {
		res, err := limiter.HitN(context.Background(), "user:42", throttr.Limit{Max: 6, Scale: time.Minute, Burst: 2}, 1)
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

func ExampleClient_Backend() {
	ctx := context.Background()
	_, client, end := exampleServer()
	defer end()

	backend := client.Backend(throttr.WithMaxWindows(1000)) // what is forgotten is looked up again, and stays exact
	fmt.Println(throttr.NewRateLimit(backend).Hit(ctx, "user:42", time.Hour, 100))

	// By itself a backend answers with windows, not with decisions.
	hourly := throttr.Limit{Max: 100, Scale: time.Hour, Algorithm: throttr.FixedWindow}
	w, err := backend.Hit(ctx, "user:42", hourly, 1)
	fmt.Println(w.Count, err)
	// Output:
	// allowed, 1 of 100, 99 remaining <nil>
	// 2 <nil>
}

// always is a Backend of one's own: every window has just been opened, and is full.
type always struct{ window.Unimplemented }

func (always) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (always) Hit(_ context.Context, _ string, l throttr.Limit, _ uint64) (window.Window, error) {
	return window.Window{Count: l.Max + 1, ExpiresAt: mockserver.Epoch.Add(l.Scale), Left: l.Scale}, nil
}

func ExampleBackend() {
	limiter := throttr.NewRateLimit(always{})
	fmt.Println(limiter.Hit(context.Background(), "user:42", time.Minute, 100))
	// Output: denied, 101 of 100, retry after 1m0s <nil>
}

func ExampleRangeError() {
	ctx := context.Background()
	_, client, end := exampleServer() // its values are 2 bytes wide
	defer end()

	limiter := throttr.NewRateLimit(client.Backend())
	_, err := limiter.Hit(ctx, "user:42", time.Minute, 1_000_000)
	fmt.Println(err)
	_, err = limiter.Hit(ctx, "user:42", time.Hour+time.Millisecond, 10)
	fmt.Println(err)
	// Output:
	// throttr: hit "user:42": Max 1000000 is out of range: 2-byte values hold at most 65535; 4-byte values (uint32) would do
	// throttr: hit "user:42": Scale 1h0m0.001s is out of range: 2-byte values hold scales of whole units (1 ns to 1 h) whose double and 45 s more are at most 65535 units; 4-byte values (uint32) would do
}

// seconds is a TTL of n seconds for servers with 2-byte values.
func seconds(n uint16) codec.TTL[uint16] { return codec.TTL[uint16]{Amount: n, Unit: codec.Seconds} }

// A refused take leaves what it did not get to others.
func ExampleRateLimit_Take() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	exports := throttr.Limit{Name: "exports", Max: 10, Scale: time.Minute}
	for _, n := range []uint64{8, 5, 2} {
		res, err := limiter.Take(context.Background(), "user:42", exports, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	res, err := limiter.Take(context.Background(), "user:42", exports, 11) // it can never be granted
	fmt.Println(11, res.Allowed, res.RetryAfter == throttr.Never, err)
	// Output:
	// 8 true 2 <nil>
	// 5 false 2 <nil>
	// 2 true 0 <nil>
	// 11 false true <nil>
}

// Requests that the user's limit refuses do not use up the limit that all users share.
func ExampleRateLimit_TakeAll() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	for range 4 {
		ok, results, err := limiter.TakeAll(ctx,
			throttr.Limit{Max: 2, Scale: time.Second}.For("user:42", 1),
			throttr.Limit{Max: 100, Scale: time.Minute}.For("everybody", 1))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ok, results[1].Remaining)
	}
	// Output:
	// true 99
	// true 98
	// false 98
	// false 98
}

// A request reserves an estimate of what it costs, and commits the actual cost.
func ExampleRateLimit_Reserve() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	tokens := throttr.Limit{Name: "tokens", Max: 1000, Scale: time.Minute}
	rv, ok, err := limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, err)
	other, ok, err := limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, err)
	fmt.Println(other.Cancel(ctx)) // does nothing

	fmt.Println(rv.Commit(ctx, 100)) // the answer was short
	other, ok, err = limiter.Reserve(ctx, tokens.For("acme", 700))
	fmt.Println(ok, other.Results()[0].Remaining, err)
	fmt.Println(other.Cancel(ctx)) // there was no answer
	res, err := limiter.Peek(ctx, "acme", tokens, 0)
	fmt.Println(res.Count, err)
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// <nil>
	// true 200 <nil>
	// <nil>
	// 100 <nil>
}

// A provider allows so many requests and so many tokens of a language model. A call waits until it fits both
// limits, and commits what it has really used.
func ExampleRateLimit_WaitAll() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	requests := throttr.Limit{Name: "requests", Max: 2, Scale: 50 * time.Millisecond}
	tokens := throttr.Limit{Name: "tokens", Max: 1000, Scale: 50 * time.Millisecond}
	begun := time.Now()
	for _, used := range []uint64{100, 700, 300} {
		rv, err := limiter.WaitAll(ctx, requests.For("provider", 1), tokens.For("provider", 900)) // at most
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := rv.Commit(ctx, 1, used); err != nil {
			fmt.Println(err)
		}
		fmt.Println("used", used)
	}
	fmt.Println(time.Since(begun) >= 50*time.Millisecond)
	// Output:
	// used 100
	// used 700
	// used 300
	// true
}

// A wait that would be in vain fails at once.
func ExampleDeadlineError() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 2 {
		_, err := limiter.Wait(ctx, "report", throttr.Limit{Max: 1, Scale: time.Hour}, 1)
		var late *throttr.DeadlineError
		if errors.As(err, &late) {
			fmt.Println("come back in", time.Until(late.At).Round(time.Minute))
		}
	}
	// Output: come back in 1h0m0s
}

// Peek counts nothing.
func ExampleRateLimit_Peek() {
	backend := memory.New()
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend)
	ctx := context.Background()
	limiter.Take(ctx, "user:42", throttr.Limit{Max: 10, Scale: time.Minute}, 8)
	for _, n := range []uint64{1, 5} {
		res, err := limiter.Peek(ctx, "user:42", throttr.Limit{Max: 10, Scale: time.Minute}, n)
		fmt.Println(n, res.Allowed, res.Remaining, err)
	}
	// Output:
	// 1 true 2 <nil>
	// 5 false 2 <nil>
}

// hangUp makes srv close every connection on which it gets a QUERY.
func hangUp(srv *mockserver.Server) {
	srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true})
}

func ExampleWithPolicy() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	hangUp(srv)

	for _, p := range []throttr.Policy{throttr.ReturnError, throttr.AllowHits, throttr.DenyHits} {
		limiter := throttr.NewRateLimit(client.Backend(), throttr.WithPolicy(p))
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 100)
		fmt.Printf("%v: allowed %v, degraded %v, error %v\n", p, res.Allowed, res.Degraded, err != nil)
	}
	// Output:
	// leave it to the caller: allowed false, degraded false, error true
	// allow hits: allowed true, degraded true, error false
	// deny hits: allowed false, degraded true, error false
}

func ExampleWithFallback() {
	ctx := context.Background()
	srv, client, end := exampleServer()
	defer end()
	hangUp(srv)

	fallback := memory.New()
	defer fallback.Close()
	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithFallback(fallback))
	for range 2 {
		res, err := limiter.Hit(ctx, "user:42", time.Hour, 1)
		fmt.Println(res.Allowed, res.Degraded, err)
	}
	// Output:
	// true true <nil>
	// false true <nil>
}

func ExampleWithObserver() {
	backend := memory.New()
	defer backend.Close()
	denied := 0
	limiter := throttr.NewRateLimit(backend,
		throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			if e.Kind == throttr.EventDenied {
				denied++
			}
		}),
		throttr.WithObserver(func(_ context.Context, e throttr.Event) {
			fmt.Println(e.Kind, e.Key, e.Result.Count, "of", e.Result.Limit)
		}))
	for range 3 {
		limiter.Hit(context.Background(), "user:42", time.Minute, 2)
	}
	fmt.Println("denied:", denied)
	// Output:
	// allowed user:42 1 of 2
	// allowed user:42 2 of 2
	// denied user:42 3 of 2
	// denied: 1
}
