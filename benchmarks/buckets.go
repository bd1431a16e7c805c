package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/throttr-go/throttr/internal/load"
)

// runBuckets measures token buckets on Redis, and prints the medians of all rounds.
func runBuckets(ctx context.Context, p plan) error {
	s := new(servers)
	var err error
	if s.dir, err = os.MkdirTemp("", "throttr-benchmarks-"); err != nil {
		return err
	}
	if s.redis, err = s.startRedis(ctx); err != nil {
		return err
	}
	r := newResults(p)
	for range p.rounds {
		if err = r.compare(ctx, s, bucket, fewKeys, bucketGoroutines); err != nil {
			break
		}
	}
	if err = errors.Join(err, s.redis.end(), os.RemoveAll(s.dir)); err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "token bucket, 1000 keys, 64 goroutines\thits/s\tCPU per hit\tof Redis\tp50\tp99\t÷ redis_rate: hits/s\tCPU\t")
	rate := measurement{bucket.name, redisRate.name, fewKeys, bucketGoroutines}
	for _, c := range bucket.contenders {
		m := measurement{bucket.name, c.name, fewKeys, bucketGoroutines}
		fmt.Fprintf(table, "%s\t%.0f\t%.1fµs\t%.1fµs\t%.0fµs\t%.0fµs\t%.2f\t%.2f\t\n", c.name,
			load.Median(r.each(m, perSecond)), load.Median(r.each(m, cpu))/1e3, load.Median(r.redisCPU[m])/1e3,
			load.Median(r.each(m, p50))/1e3, load.Median(r.each(m, p99))/1e3,
			load.Median(r.quotients(perSecond, m, rate)), load.Median(r.bothCPU(m, rate)))
	}
	return table.Flush()
}
