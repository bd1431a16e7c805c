// Command outage shows what becomes of hits while a server is away, under each policy: it
// takes a mock server away from under a load for a second, and counts who decided what.
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
	before  = 500 * time.Millisecond // the server is there
	away    = time.Second            // the server is away
	after   = 1500 * time.Millisecond
	pause   = 2 * time.Millisecond // of each caller between two hits
	scale   = 200 * time.Millisecond
	limit   = 50
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outage:", err)
		os.Exit(1)
	}
}

// figures is what came of the hits under a policy.
type figures struct {
	server, allowed, denied, errors atomic.Int64 // who decided: the server; the policy, two ways; nobody
	longest                         atomic.Int64 // the longest time that a hit took, in ns
	recovered                       atomic.Int64 // when the server first decided again, in ns after its return
}

// run prints a row of figures for each policy.
func run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "%d callers, limit %d per %v; the server goes after %v and is back %v later.\n\n", callers, limit, scale, before, away)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "policy\tby the server\tallowed\tdenied\terrors\tlongest hit\tback after\t")
	embedded := memory.New()
	defer embedded.Close()
	for _, p := range []struct {
		name   string
		option throttr.Option
	}{
		{"return an error", throttr.WithPolicy(throttr.ReturnError)},
		{"allow hits", throttr.WithPolicy(throttr.AllowHits)},
		{"deny hits", throttr.WithPolicy(throttr.DenyHits)},
		{"embedded fallback", throttr.WithFallback(embedded)},
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
	_, err := fmt.Fprintln(out, "\nHits that the policy decided, while there was no answer from the server, are in the columns allowed and denied.")
	return err
}

// measure has callers hit while a server goes and comes back.
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
	var back atomic.Int64 // when the server came back, in ns since 1970
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
	wait(ctx, away)
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

// hit makes a hit and counts what came of it.
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

// wait waits for d, and returns false if ctx has ended.
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
