package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

// connectRueidis returns a client with defaults, but without the client-side cache, which does
// not help counters.
func connectRueidis(s setup) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.servers.redis.addr}, DisableCache: true})
}

var rueidisIncrease = contender{
	name: "rueidis", module: "github.com/redis/rueidis",
	does: "INCR on Redis, over pipelined connections that goroutines share; a plain count",
	start: func(_ context.Context, s setup) (*instance, error) {
		client, err := connectRueidis(s)
		if err != nil {
			return nil, err
		}
		return &instance{
			do: func(ctx context.Context, key string) (bool, error) {
				return true, client.Do(ctx, client.B().Incr().Key("count:"+key).Build()).Error()
			},
			close: client.Close,
		}, nil
	},
}

var rueidisHit = contender{
	name: "rueidis", module: "github.com/redis/rueidis",
	does: "INCR, PEXPIRE NX and PTTL on Redis, pipelined: a fixed window of three commands that are not atomic, so that a key " +
		"can stay without an end if the client dies in between",
	start: func(_ context.Context, s setup) (*instance, error) {
		client, err := connectRueidis(s)
		if err != nil {
			return nil, err
		}
		return &instance{
			do: func(ctx context.Context, key string) (bool, error) {
				res := client.DoMulti(ctx,
					client.B().Incr().Key(key).Build(),
					client.B().Pexpire().Key(key).Milliseconds(s.scale.Milliseconds()).Nx().Build(),
					client.B().Pttl().Key(key).Build())
				count, err := res[0].AsInt64()
				for _, r := range res[1:] {
					if err == nil {
						err = r.Error()
					}
				}
				return count <= int64(s.limit), err
			},
			close: client.Close,
		}, nil
	},
}

// connectGoRedis returns a client with defaults.
func connectGoRedis(s setup) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.servers.redis.addr})
}

var goRedisIncrease = contender{
	name: "go-redis", module: "github.com/redis/go-redis/v9",
	does: "INCR on Redis, over a pool of connections, each of which carries one command at a time; a plain count",
	start: func(_ context.Context, s setup) (*instance, error) {
		client := connectGoRedis(s)
		return &instance{
			do: func(ctx context.Context, key string) (bool, error) {
				return true, client.Incr(ctx, "count:"+key).Err()
			},
			close: func() { client.Close() },
		}, nil
	},
}

var goRedisHit = contender{
	name: "go-redis", module: "github.com/redis/go-redis/v9",
	does: "the same three commands in one of its pipelines",
	start: func(_ context.Context, s setup) (*instance, error) {
		client := connectGoRedis(s)
		return &instance{
			do: func(ctx context.Context, key string) (bool, error) {
				pipe := client.Pipeline()
				count := pipe.Incr(ctx, key)
				pipe.Do(ctx, "pexpire", key, s.scale.Milliseconds(), "nx")
				pipe.PTTL(ctx, key)
				_, err := pipe.Exec(ctx)
				return count.Val() <= int64(s.limit), err
			},
			close: func() { client.Close() },
		}, nil
	},
}

// redisHit is a fixed window with the backend of package redisbackend, and redisBucket what redisRate does.
var (
	redisHit = throttrOnRedis("`RateLimit.Hit` on Redis: an exact fixed window per key in a Lua script, in one round trip of rueidis, which concurrent " +
		"hits share")
	redisBucket = throttrOnRedis("a token bucket, which is GCRA, in a Lua script on Redis, exact, in one round trip of rueidis",
		throttr.WithAlgorithm(window.TokenBucket))
)

func throttrOnRedis(does string, opts ...throttr.Option) contender {
	return contender{name: "throttr on Redis", module: "github.com/redis/rueidis", does: does, start: func(_ context.Context, s setup) (*instance, error) {
		client, err := connectRueidis(s)
		if err != nil {
			return nil, err
		}
		return &instance{do: hits(redisbackend.New(client), s, opts...), close: client.Close}, nil
	}}
}

var redisRate = contender{
	name: "redis_rate", module: "github.com/go-redis/redis_rate/v10",
	does: "GCRA in a Lua script on Redis, exact, in one round trip of go-redis: a bucket that refills continuously, so that " +
		"up to twice the limit can pass within one scale",
	start: func(_ context.Context, s setup) (*instance, error) {
		client := connectGoRedis(s)
		limiter := redis_rate.NewLimiter(client)
		rate := redis_rate.Limit{Rate: s.limit, Burst: s.limit, Period: s.scale}
		return &instance{
			do: func(ctx context.Context, key string) (bool, error) {
				res, err := limiter.Allow(ctx, key, rate)
				return err == nil && res.Allowed == 1, err
			},
			close: func() { client.Close() },
		}, nil
	},
}
