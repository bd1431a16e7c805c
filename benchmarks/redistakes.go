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

// redisTake makes a take of a key on Redis.
func redisTake(name, does string, take func(ctx context.Context, r *throttr.RateLimit, key string, l throttr.Limit) (bool, error)) contender {
	return contender{name: name, module: "github.com/redis/rueidis", does: does, start: func(_ context.Context, s setup) (*instance, error) {
		client, err := connectRueidis(s)
		if err != nil {
			return nil, err
		}
		limiter := throttr.NewRateLimit(redisbackend.New(client), patience)
		l := throttr.Limit{Max: uint64(s.limit), Scale: s.scale}
		return &instance{close: client.Close, do: func(ctx context.Context, key string) (bool, error) {
			return take(ctx, limiter, key, l)
		}}, nil
	}}
}

// takeOf takes from a limit with an algorithm, the same of all keys.
func takeOf(a window.Algorithm) func(ctx context.Context, r *throttr.RateLimit, key string, l throttr.Limit) (bool, error) {
	return func(ctx context.Context, r *throttr.RateLimit, key string, l throttr.Limit) (bool, error) {
		l.Algorithm = a
		res, err := r.Take(ctx, key, l, 1)
		return res.Allowed, err
	}
}

var (
	redisTakeFixed   = redisTake("take, fixed window", "`RateLimit.Take` on Redis", takeOf(window.FixedWindow))
	redisTakeBucket  = redisTake("take, token bucket", "the same with `window.TokenBucket`", takeOf(window.TokenBucket))
	redisTakeSliding = redisTake("take, sliding window", "the same with `window.SlidingWindow`", takeOf(window.SlidingWindow))
	redisTakeOwn     = redisTake("take, limits of their own", "the same with fixed windows, and another Max for each key",
		func(ctx context.Context, r *throttr.RateLimit, key string, l throttr.Limit) (bool, error) {
			l.Max += uint64(crc32.ChecksumIEEE([]byte(key)))
			res, err := r.Take(ctx, key, l, 1)
			return res.Allowed, err
		})
	redisTakeTwo = redisTake("all of two", "`RateLimit.TakeAll` of two scales of a key",
		func(ctx context.Context, r *throttr.RateLimit, key string, l throttr.Limit) (bool, error) {
			longer := l
			longer.Scale += time.Hour
			ok, _, err := r.TakeAll(ctx, l.For(key, 1), longer.For(key, 1))
			return ok, err
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
