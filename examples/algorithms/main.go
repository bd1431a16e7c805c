// Algorithms shows which requests of a bursty and of a steady caller each algorithm allows. The
// clock is virtual, so the program exits at once.
//
//	go run ./examples/algorithms
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

const (
	scale  = 8 * time.Second
	limit  = 8
	length = 3 * scale
	column = scale / 16
)

func main() {
	log.SetFlags(0)
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run prints a chart for each caller.
func run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "The limit is %d in %v. A column is half a second: the number of requests that were allowed\n", limit, scale)
	fmt.Fprintln(out, `in it, or "-" if all were refused.`)
	for _, caller := range []struct {
		name  string
		times []time.Duration
	}{
		{"A bursty caller: a request at 0 s, and then bursts of 9", bursty()},
		{"A steady caller: a request each half second, which is twice as many as the limit", steady()},
	} {
		fmt.Fprintf(out, "\n%s:\n\n%-14s  %s  most in any %v\n", caller.name, "", ruler(), scale)
		fmt.Fprintf(out, "%-14s  %s\n", "sent", chart(caller.times, caller.times))
		for _, a := range []throttr.Algorithm{
			throttr.FixedWindow, throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog, throttr.TokenBucket,
		} {
			allowed, err := send(ctx, a, caller.times)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%-14s  %s  %d\n", a, chart(caller.times, allowed), most(allowed))
		}
	}
	return nil
}

// bursty returns the times of requests that come together: just before and just after the end of a
// window, and later.
func bursty() []time.Duration {
	times := []time.Duration{0}
	for _, at := range []time.Duration{7500, 8000, 12000, 16000, 20000} {
		for range 9 {
			times = append(times, at*time.Millisecond)
		}
	}
	return times
}

// steady returns the times of requests that come one by one.
func steady() (times []time.Duration) {
	for at := time.Duration(0); at < length; at += scale / (2 * limit) {
		times = append(times, at)
	}
	return times
}

// send sends requests at the given times, and returns the times of those that were allowed.
func send(ctx context.Context, algorithm throttr.Algorithm, times []time.Duration) (allowed []time.Duration, err error) {
	start := time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC) // a multiple of the scale
	now := start
	backend := memory.New(memory.WithClock(func() time.Time { return now }))
	defer backend.Close()
	limiter := throttr.NewRateLimit(backend, throttr.WithAlgorithm(algorithm))
	for _, at := range times {
		now = start.Add(at)
		res, err := limiter.Hit(ctx, "caller", scale, limit)
		if err != nil {
			return nil, err
		}
		if res.Allowed {
			allowed = append(allowed, at)
		}
	}
	return allowed, nil
}

// chart returns a line with a column for each half second.
func chart(sent, allowed []time.Duration) string {
	line := []byte(fmt.Sprintf("%*s", int(length/column), ""))
	for _, at := range sent {
		line[at/column] = '-'
	}
	for _, at := range allowed {
		if c := &line[at/column]; *c < '1' {
			*c = '1'
		} else {
			*c++
		}
	}
	return string(line)
}

// ruler returns a line with the time at each half of a scale.
func ruler() (line string) {
	for at := time.Duration(0); at < length; at += scale / 2 {
		line += fmt.Sprintf("|%-*s", int(scale/2/column)-1, at)
	}
	return line
}

// most returns the most requests in any interval of a scale.
func most(times []time.Duration) (most int) {
	for i, begin := range times {
		n := i
		for n < len(times) && times[n]-begin < scale {
			n++
		}
		most = max(most, n-i)
	}
	return most
}
