// Package redisbackend keeps rate-limit windows on Redis or Valkey with the client rueidis, on one
// server, behind Sentinel or on a cluster. Any number of processes share exact windows, with one
// round trip per hit.
//
//	import _ "github.com/throttr-go/throttr/redisbackend"
//
//	backend, err := throttr.Open(ctx, "redis://127.0.0.1:6379")
//	if err != nil {
//		return err
//	}
//	defer backend.Close()
//
//	limiter := throttr.NewRateLimit(backend)
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// [New] takes a client of your own.
//
// Package redisbackend/goredis, a module of its own, does the same with go-redis. Both keep the
// same windows, those of package [rediswindow], which documents errors, data and accuracy.
package redisbackend
