package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	_ "github.com/throttr-go/throttr/postgresbackend"
)

// BenchmarkPostgres asks what a decision costs that processes share in PostgreSQL.
func BenchmarkPostgres(b *testing.B) {
	bucket := limit
	bucket.Algorithm = throttr.TokenBucket
	startPostgres(b)
	compare(b, []load{{1000, 1, true}, {1000, 8, true}, {1000, 64, true}, {1000, 512, true}},
		contender{"by hand", byHand(limit)},
		contender{"throttr take", onPostgres(limit)},
		contender{"throttr bucket", onPostgres(bucket)},
	)
}

// BenchmarkPostgresRefused asks the same of calls that are refused, after one of each key.
func BenchmarkPostgresRefused(b *testing.B) {
	full := throttr.Limit{Max: 1, Scale: scale}
	startPostgres(b)
	compare(b, []load{{1000, 1, true}}, contender{"by hand", byHand(full)}, contender{"throttr take", onPostgres(full)})
}

// postgres is the server of the benchmark that runs, if it has one.
var postgres *testkit.Postgres

func startPostgres(b *testing.B) {
	postgres = testkit.StartPostgres(b)
	b.Cleanup(func() { postgres = nil })
}

// postgresCPU returns the time of all processes of the server.
func postgresCPU() (sum time.Duration) {
	for _, pid := range postgres.Processes() {
		var nanos time.Duration
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		fmt.Sscan(string(text), &nanos)
		sum += nanos
	}
	return sum
}

func onPostgres(l throttr.Limit) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		r, end := limiter(b, postgres.URL("durability=unlogged"))
		return func(ctx context.Context, key string) error {
			res, err := r.Take(ctx, key, l, 1)
			return allowed(res.Allowed || l.Max == 1, err)
		}, end
	}
}

// byHand is what a program has without this module: a fixed window, and a statement for each call.
func byHand(l throttr.Limit) func(b *testing.B) (call, func()) {
	return func(b *testing.B) (call, func()) {
		pool := must(pgxpool.New(b.Context(), postgres.URL("pool_max_conns=4", "synchronous_commit=off")))(b)
		must(pool.Exec(b.Context(),
			"CREATE UNLOGGED TABLE IF NOT EXISTS hits (key text PRIMARY KEY, ends timestamptz, n int)"))(b)
		return func(ctx context.Context, key string) error {
			n := uint64(0)
			err := pool.QueryRow(ctx, `INSERT INTO hits AS h VALUES ($1, now() + $2, 1) ON CONFLICT (key) DO UPDATE SET
n = CASE WHEN h.ends > now() THEN h.n + 1 ELSE 1 END, ends = CASE WHEN h.ends > now() THEN h.ends ELSE excluded.ends END
RETURNING n`, key, scale).Scan(&n)
			return allowed(n <= l.Max || l.Max == 1, err)
		}, pool.Close
	}
}
