// Command outage shows what happens to hits while a server is down, under each policy. It stops a
// mock server for a second while callers hit it, and counts the decisions of the server and of the
// policy. Then it starts to hit a server that is not there yet.
//
//	go run ./examples/outage
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/mockserver"
)

const (
	callers = 32
	before  = 500 * time.Millisecond // until the outage
	outage  = time.Second
	after   = 1500 * time.Millisecond // from the end of the outage
	pause   = 2 * time.Millisecond    // of a caller between two hits
	scale   = 200 * time.Millisecond
	limit   = 50
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

// figures counts the outcomes of hits under a policy.
type figures struct {
	server          atomic.Int64 // decisions of the server
	allowed, denied atomic.Int64 // decisions of the policy
	errors          atomic.Int64
	longest         atomic.Int64 // duration of the longest hit, in ns
	recovered       atomic.Int64 // from the end of the outage to the server's next decision, in ns
}

// run prints a row of figures for each policy.
func run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%d callers, limit %d per %v; the server stops after %v and is back %v later.\n\n", callers, limit, scale, before, outage)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "policy\tby the server\tallowed\tdenied\terrors\tlongest hit\tback after\t")
	local := memory.New()
	defer local.Close()
	for _, p := range []struct {
		name   string
		option throttr.Option
	}{
		{"return an error", throttr.WithPolicy(throttr.ReturnError)},
		{"allow hits", throttr.WithPolicy(throttr.AllowHits)},
		{"deny hits", throttr.WithPolicy(throttr.DenyHits)},
		{"fallback in memory", throttr.WithFallback(local)},
	} {
		f, err := measure(ctx, p.option)
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t\n", p.name, f.server.Load(), f.allowed.Load(), f.denied.Load(), f.errors.Load(),
			time.Duration(f.longest.Load()).Round(time.Millisecond), time.Duration(f.recovered.Load()).Round(time.Millisecond))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "\nThe columns allowed and denied count the hits that the policy or the fallback decided."); err != nil {
		return err
	}
	return showStart(ctx, out)
}

// measure counts the outcomes of hits before, during and after an outage.
func measure(ctx context.Context, policy throttr.Option) (*figures, error) {
	srv, err := mockserver.Start()
	if err != nil {
		return nil, err
	}
	defer srv.Close()
	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{srv.Addr()}})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	limiter := throttr.NewRateLimit(client.Backend(), policy)

	f := new(figures)
	var back atomic.Int64 // the end of the outage, in ns since 1970
	ctx, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	for range callers {
		load.Go(func() {
			for wait(ctx, pause) {
				f.hit(ctx, limiter, &back)
			}
		})
	}
	wait(ctx, before)
	srv.Refuse(true)
	srv.Disconnect()
	wait(ctx, outage)
	if err := srv.Restart(false); err != nil {
		stop()
		return nil, err
	}
	srv.Refuse(false)
	back.Store(time.Now().UnixNano())
	wait(ctx, after)
	stop()
	load.Wait()
	return f, nil
}

// hit makes a hit and counts its outcome.
func (f *figures) hit(ctx context.Context, limiter *throttr.RateLimit, back *atomic.Int64) {
	begun := time.Now()
	res, err := limiter.Hit(ctx, "user:42", scale, limit)
	if ctx.Err() != nil {
		return
	}
	for took, old := int64(time.Since(begun)), f.longest.Load(); took > old && !f.longest.CompareAndSwap(old, took); old = f.longest.Load() {
	}
	switch {
	case err != nil:
		f.errors.Add(1)
	case !res.Degraded:
		f.server.Add(1)
		if at := back.Load(); at != 0 && begun.UnixNano() >= at {
			f.recovered.CompareAndSwap(0, time.Now().UnixNano()-at)
		}
	case res.Allowed:
		f.allowed.Add(1)
	default:
		f.denied.Add(1)
	}
}

// wait waits for d. It returns false if ctx has ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
