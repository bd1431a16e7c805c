package throttr_test

import (
	"context"
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
