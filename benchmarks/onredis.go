package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// redisComparison compares the contenders of a workload on Redis, the last of which is the measure of all.
type redisComparison struct {
	workload
	keys       int
	goroutines []int
}

var (
	bucketComparisons = []redisComparison{{bucket, fewKeys, []int{bucketGoroutines}}}
	windowComparisons = []redisComparison{{redisWindow, fewKeys, []int{1, 64, 512}}, {redisWindow, 1, oneKeyGoroutines}, {redisTakes, fewKeys, redisTakesLoads}, {redisTakes, 1, redisTakesLoads}}
)

// runOnRedis measures on Redis only, and prints the medians of all rounds.
func runOnRedis(ctx context.Context, p plan, comparisons []redisComparison) error {
	s := new(servers)
	var err error
	if s.dir, err = os.MkdirTemp("", "throttr-benchmarks-"); err != nil {
		return err
	}
	if s.redis, err = s.startRedis(ctx); err != nil {
		return err
	}
	r := newResults(p)
	err = r.compareOnRedis(ctx, s, comparisons)
	if err = errors.Join(err, s.redis.end(), os.RemoveAll(s.dir)); err != nil {
		return err
	}
	for _, c := range comparisons {
		for _, n := range c.goroutines {
			if err := r.printComparison(c, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareOnRedis measures all rounds.
func (r *results) compareOnRedis(ctx context.Context, s *servers, comparisons []redisComparison) error {
	for range r.plan.rounds {
		for _, c := range comparisons {
			for _, n := range c.goroutines {
				if err := r.compare(ctx, s, c.workload, c.keys, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// printComparison prints a table of a comparison with a number of goroutines.
func (r *results) printComparison(of redisComparison, goroutines int) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	last := of.contenders[len(of.contenders)-1].name
	fmt.Fprintf(table, "%s, %s, %s\thits/s\tCPU per hit\tof Redis\tp50\tp99\t÷ %s: hits/s\tCPU\t\n",
		of.name, plural(of.keys, "key"), plural(goroutines, "goroutine"), last)
	measure := measurement{of.name, last, of.keys, goroutines}
	for _, c := range of.contenders {
		m := measurement{of.name, c.name, of.keys, goroutines}
		fmt.Fprintf(table, "%s\t%.0f\t%.1fµs\t%.1fµs\t%.0fµs\t%.0fµs\t%.2f\t%.2f\t\n", c.name,
			load.Median(r.each(m, perSecond)), load.Median(r.each(m, cpu))/1e3, load.Median(r.redisCPU[m])/1e3,
			load.Median(r.each(m, p50))/1e3, load.Median(r.each(m, p99))/1e3,
			load.Median(r.quotients(perSecond, m, measure)), load.Median(r.bothCPU(m, measure)))
	}
	return table.Flush()
}
