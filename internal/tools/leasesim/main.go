// Leasesim runs package lease in virtual time: processes that share one limit, at some distance from
// where it is kept. It prints what docs/leases.md shows.
//
//	go -C internal/tools run ./leasesim
//	go -C internal/tools run ./leasesim -processes 8,2000 -delays 1ms,100ms -demands 0.9,1.2 -age 500ms
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	processes = flag.String("processes", "2,8,32,200,2000", "numbers of processes")
	delays    = flag.String("delays", "100us,1ms,10ms,100ms", "mean round trips")
	demands   = flag.String("demands", "0.9,1.2,20", "demands, as parts of the limit")
	limit     = flag.Uint64("limit", 50_000, "the limit of a second")
	age       = flag.Duration("age", 0, "the age of blocks (default 100ms, and four times the round trip at least)")
	windows   = flag.Int("windows", 4, "windows that are measured")
)

// main runs simulate as a test, as virtual time is that of tests.
func main() {
	flag.Parse()
	worlds, err := worldsOf()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leasesim:", err)
		os.Exit(2)
	}
	fmt.Printf("limit %d per second\n\n", *limit)
	fmt.Println("| processes | round trip | demand | allowed/s | used | requests per 1,000 allowed | refused with places left, per 1,000 hits | over |")
	fmt.Println("|---:|---:|---:|---:|---:|---:|---:|---:|")
	test := testing.InternalTest{Name: "Leases", F: func(t *testing.T) {
		for _, w := range worlds {
			synctest.Test(t, func(t *testing.T) { fmt.Println(w.run(t.Context())) })
		}
		os.Exit(0) // without the report of a test
	}}
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{test}, nil, nil)
}

// worldsOf returns the worlds that the flags ask for.
func worldsOf() (worlds []world, err error) {
	all, err := split(*processes, strconv.Atoi)
	if err != nil {
		return nil, err
	}
	trips, err := split(*delays, time.ParseDuration)
	if err != nil {
		return nil, err
	}
	parts, err := split(*demands, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		for _, trip := range trips {
			for _, demand := range parts {
				a := *age
				if a == 0 {
					a = max(100*time.Millisecond, 4*trip)
				}
				worlds = append(worlds, world{processes: n, trip: trip, demand: demand, age: a, limit: *limit, windows: *windows})
			}
		}
	}
	return worlds, nil
}

// split parses a list with commas.
func split[T any](list string, parse func(string) (T, error)) (all []T, err error) {
	for s := range strings.SplitSeq(list, ",") {
		one, err := parse(s)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
