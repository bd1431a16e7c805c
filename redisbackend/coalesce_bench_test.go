//go:build unix

package redisbackend_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// BenchmarkCoalescing answers what hits that share requests gain, compared with takes, which do not, and
// with a program that counts with three commands of the client. The metric cpu-ns/hit is the CPU time
// of this process, and redis-ns/hit that of the server.
func BenchmarkCoalescing(b *testing.B) {
	s := startServer(b)
	for _, keys := range []uint64{1, 1000} {
		for _, goroutines := range []int{1, 2, 4, 8, 64, 512} {
			for _, contender := range []struct {
				name string
				hit  func(client rueidis.Client) func(ctx context.Context, key string) error
			}{
				{"shared", func(client rueidis.Client) func(context.Context, string) error {
					return hitsOf(redisbackend.New(client))
				}},
				{"alone", func(client rueidis.Client) func(context.Context, string) error {
					return takesOf(redisbackend.New(client))
				}},
				{"three commands", threeCommands},
			} {
				b.Run(fmt.Sprintf("%d keys/%d goroutines/%s", keys, goroutines, contender.name), func(b *testing.B) {
					client := s.connect()
					hit := contender.hit(client)
					names := make([]string, keys)
					for i := range names {
						names[i] = fmt.Sprint(contender.name, ":", i)
						if err := hit(b.Context(), names[i]); err != nil {
							b.Fatal(err)
						}
					}
					redis(b, client, "CONFIG", "RESETSTAT")
					before, redisBefore := cpuTime(b), redisTime(b, client)
					var next atomic.Int64
					var all sync.WaitGroup
					b.ResetTimer()
					for g := range goroutines {
						all.Go(func() {
							random := uint64(g)
							for next.Add(1) <= int64(b.N) {
								random = random*6364136223846793005 + 1442695040888963407
								if err := hit(context.Background(), names[random>>33%keys]); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					all.Wait()
					b.StopTimer()
					b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/hit")
					b.ReportMetric(float64(redisTime(b, client)-redisBefore)/float64(b.N), "redis-ns/hit")
					if contender.name == "on" {
						b.ReportMetric(float64(b.N)/callsOf(b, client, "evalsha"), "hits/request")
					}
				})
			}
		}
	}
}

// hitsOf returns a function that hits a window of a backend.
func hitsOf(backend *rediswindow.Backend) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		_, err := backend.Hit(ctx, key, limitOf(window.FixedWindow, time.Hour, 1<<40), 1)
		return err
	}
}

// takesOf returns a function that takes from a window of a backend. Takes share no requests.
func takesOf(backend *rediswindow.Backend) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		_, err := backend.Take(ctx, key, limitOf(window.FixedWindow, time.Hour, 1<<40), 1)
		return err
	}
}

// threeCommands returns a function that counts with three commands in a pipeline.
func threeCommands(client rueidis.Client) func(context.Context, string) error {
	return func(ctx context.Context, key string) error {
		for _, r := range client.DoMulti(ctx,
			client.B().Incr().Key(key).Build(),
			client.B().Pexpire().Key(key).Milliseconds(3_600_000).Nx().Build(),
			client.B().Pttl().Key(key).Build()) {
			if err := r.Error(); err != nil {
				return err
			}
		}
		return nil
	}
}

// redisTime returns the CPU time of the server.
func redisTime(b *testing.B, client rueidis.Client) time.Duration {
	var user, system float64
	text, err := redis(b, client, "INFO", "cpu").ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		fmt.Sscanf(line, "used_cpu_sys:%f", &system)
		fmt.Sscanf(line, "used_cpu_user:%f", &user)
	}
	return time.Duration((user + system) * 1e9)
}

// callsOf returns how often the server has executed a command since CONFIG RESETSTAT.
func callsOf(b *testing.B, client rueidis.Client, command string) (calls float64) {
	text, err := redis(b, client, "INFO", "commandstats").ToString()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		fmt.Sscanf(line, "cmdstat_"+command+":calls=%f", &calls)
	}
	return calls
}
