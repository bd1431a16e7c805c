package postgresbackend_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

// byHand takes one of a fixed window as programs do without a package: with a statement for each call.
const byHand = `INSERT INTO by_hand AS t (key, ends, n) VALUES ($1, now() + interval '1 hour', 1)
ON CONFLICT (key) DO UPDATE SET n = CASE WHEN t.ends <= now() THEN 1 ELSE t.n + 1 END,
	ends = CASE WHEN t.ends <= now() THEN excluded.ends ELSE t.ends END
WHERE t.n < $2 OR t.ends <= now() RETURNING n`

// How often takes of 1,000 keys decide, by this package and by hand, with an unlogged table each.
func BenchmarkTakes(b *testing.B) {
	s := testkit.StartPostgres(b)
	hand := connect(b, s, func(c *pgxpool.Config) { c.MaxConns = 4 })
	_, err := hand.Exec(b.Context(), "CREATE UNLOGGED TABLE by_hand (key text PRIMARY KEY, ends timestamptz, n bigint) WITH (fillfactor = 50)")
	noError(b, err)
	pool := connect(b, s, func(c *pgxpool.Config) { c.MaxConns = 2 })
	backend := postgresbackend.New(pool, newTable(b, pool, postgresbackend.WithDurability(postgresbackend.Unlogged))...)
	limiter := throttr.NewRateLimit(backend)
	for _, full := range []bool{false, true} {
		most := uint64(1 << 40)
		if full {
			most = 1
		}
		l := limitOf(window.FixedWindow, most)
		for name, take := range map[string]func(ctx context.Context, key string) error{
			"package": func(ctx context.Context, key string) error {
				_, err := limiter.Take(ctx, key, l, 1)
				return err
			},
			"by_hand": func(ctx context.Context, key string) error {
				_, err := hand.Exec(ctx, byHand, key, most)
				return err
			},
		} {
			for _, callers := range []int{1, 8, 64, 512} {
				if full && callers != 1 {
					continue
				}
				b.Run(fmt.Sprintf("refused=%v/callers=%d/%s", full, callers, name), func(b *testing.B) {
					var all sync.WaitGroup
					var next atomic.Int64
					ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
					defer cancel()
					for range callers {
						all.Go(func() {
							for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
								if err := take(ctx, fmt.Sprint("user:", i*7919%1000)); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					all.Wait()
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				})
			}
		}
	}
}
