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

// How often takes of 1,000 keys decide, by this package and by hand, with an unlogged table each. The two take turns, so
// that their ratio is that of one and the same machine, however busy it is.
func BenchmarkTakes(b *testing.B) {
	s := testkit.StartPostgres(b)
	hand := connect(b, s, func(c *pgxpool.Config) { c.MaxConns = 4 })
	_, err := hand.Exec(b.Context(),
		"CREATE UNLOGGED TABLE by_hand (key text PRIMARY KEY, ends timestamptz, n bigint) WITH (fillfactor = 50)")
	noError(b, err)
	pool := connect(b, s, func(c *pgxpool.Config) { c.MaxConns = 2 })
	durability := postgresbackend.WithDurability(postgresbackend.Unlogged)
	limiter := throttr.NewRateLimit(postgresbackend.New(pool, newTable(b, pool, durability)...))
	for _, row := range []struct {
		callers int
		most    uint64
	}{{1, 1 << 40}, {8, 1 << 40}, {64, 1 << 40}, {512, 1 << 40}, {1, 1}} {
		l := limitOf(window.FixedWindow, row.most)
		b.Run(fmt.Sprintf("callers=%d/refused=%v", row.callers, row.most == 1), func(b *testing.B) {
			const turns = 6
			n := b.N/turns + 1
			var byPackage, manual time.Duration
			for range turns {
				byPackage += timeOfTakes(b, row.callers, n, func(ctx context.Context, key string) error {
					_, err := limiter.Take(ctx, key, l, 1)
					return err
				})
				manual += timeOfTakes(b, row.callers, n, func(ctx context.Context, key string) error {
					_, err := hand.Exec(ctx, byHand, key, row.most)
					return err
				})
			}
			b.ReportMetric(turns*float64(n)/byPackage.Seconds(), "calls/s")
			b.ReportMetric(turns*float64(n)/manual.Seconds(), "by-hand/s")
			b.ReportMetric(manual.Seconds()/byPackage.Seconds(), "ratio")
		})
	}
}

// timeOfTakes returns how long some callers need for n takes.
func timeOfTakes(b *testing.B, callers, n int, take func(ctx context.Context, key string) error) time.Duration {
	var all sync.WaitGroup
	var next atomic.Int64
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	for range callers {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := take(ctx, fmt.Sprint("user:", i*7919%1000)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(begun)
}
