package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// redisTake takes from limits of a key on Redis: several together.
func redisTake(name, does string, limits func(key string, s setup) []throttr.Limit) contender {
	return contender{name: name, module: "github.com/redis/rueidis", does: does, start: func(_ context.Context, s setup) (*instance, error) {
		client, err := connectRueidis(s)
		if err != nil {
			return nil, err
		}
		limiter := throttr.NewRateLimit(redisbackend.New(client), patience)
		return &instance{close: client.Close, do: func(ctx context.Context, key string) (bool, error) {
			all := limits(key, s)
			if len(all) == 1 {
				res, err := limiter.Take(ctx, key, all[0], 1)
				return res.Allowed, err
			}
			ok, _, err := limiter.TakeAll(ctx, all[0].For(key, 1), all[1].For(key, 1))
			return ok, err
		}}, nil
	}}
}

// redisLimit returns one limit of an algorithm for all keys.
func redisLimit(a window.Algorithm) func(string, setup) []throttr.Limit {
	return func(_ string, s setup) []throttr.Limit {
		return []throttr.Limit{{Max: uint64(s.limit), Scale: s.scale, Algorithm: a}}
	}
}

var (
	redisTakeFixed   = redisTake("take, fixed window", "`RateLimit.Take` on Redis", redisLimit(window.FixedWindow))
	redisTakeBucket  = redisTake("take, token bucket", "the same with `window.TokenBucket`", redisLimit(window.TokenBucket))
	redisTakeSliding = redisTake("take, sliding window", "the same with `window.SlidingWindow`", redisLimit(window.SlidingWindow))
	redisTakeOwn     = redisTake("take, limits of their own", "the same with fixed windows, and another Max for each key",
		func(key string, s setup) []throttr.Limit {
			return []throttr.Limit{{Max: uint64(s.limit) + uint64(crc32.ChecksumIEEE([]byte(key))), Scale: s.scale, Algorithm: window.FixedWindow}}
		})
	redisTakeTwo = redisTake("all of two", "`RateLimit.TakeAll` of two scales of a key", func(_ string, s setup) []throttr.Limit {
		l := throttr.Limit{Max: uint64(s.limit), Scale: s.scale, Algorithm: window.FixedWindow}
		longer := l
		longer.Scale += time.Hour
		return []throttr.Limit{l, longer}
	})

	redisTakes = workload{"takes on Redis", []contender{
		redisTakeFixed, redisTakeBucket, redisTakeSliding, redisTakeOwn, redisTakeTwo, redisRate, rueidisHit,
	}}
)

// redisTakesLoads are the numbers of goroutines of takes on Redis.
var redisTakesLoads = []int{64, 512}

func (r *results) redisTakesRequirements() (all []requirement) {
	for _, n := range redisTakesLoads {
		of := func(c contender, keys int) measurement { return measurement{redisTakes.name, c.name, keys, n} }
		row := func(c contender, keys int) string {
			return fmt.Sprintf("Redis, %s, %s, %s", c.name, plural(keys, "key"), plural(n, "goroutine"))
		}
		for _, c := range []contender{redisTakeFixed, redisTakeBucket, redisTakeSliding, redisTakeTwo} {
			all = append(all, atMost(row(c, fewKeys)+": allocations", 1, hundredths(r.each(of(c, fewKeys), allocs))))
		}
		two, take, own := of(redisTakeTwo, fewKeys), of(redisTakeFixed, fewKeys), of(redisTakeOwn, fewKeys)
		bucket, rate := of(redisTakeBucket, fewKeys), of(redisRate, fewKeys)
		all = append(all,
			atLeast(row(redisTakeTwo, fewKeys)+" ÷ take: throughput", 0.6, r.quotients(perSecond, two, take)),
			atLeast(row(redisTakeOwn, fewKeys)+" ÷ one limit for all: throughput", 0.75, r.quotients(perSecond, own, take)),
			atLeast(row(redisTakeBucket, fewKeys)+" ÷ redis_rate: throughput", 5, r.quotients(perSecond, bucket, rate)),
			atMost(row(redisTakeBucket, fewKeys)+" ÷ redis_rate: CPU of the process and of Redis", 0.2, r.bothCPU(bucket, rate)),
			atLeast(row(redisTakeFixed, 1)+" ÷ rueidis INCR, PEXPIRE NX and PTTL: throughput", 3.5, r.quotients(perSecond, of(redisTakeFixed, 1), of(rueidisHit, 1))),
			atLeast(row(redisTakeBucket, 1)+" ÷ rueidis INCR, PEXPIRE NX and PTTL: throughput", 4.5, r.quotients(perSecond, of(redisTakeBucket, 1), of(rueidisHit, 1))),
		)
		if cpus := [2][]float64{r.redisCPU[two], r.redisCPU[take]}; len(cpus[0]) == len(cpus[1]) {
			ratios := make([]float64, len(cpus[0]))
			for i := range ratios {
				ratios[i] = cpus[0][i] / cpus[1][i]
			}
			all = append(all, atMost(row(redisTakeTwo, fewKeys)+" ÷ take: CPU of Redis", 1.8, ratios))
		}
	}
	return all
}
