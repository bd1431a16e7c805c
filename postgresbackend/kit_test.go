package postgresbackend_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

var (
	noError = testkit.NoError
	expect  = testkit.Expect
)

// must makes a call that must succeed.
func must[R any](t testing.TB, f func(context.Context, string, window.Limit, uint64) (R, error), key string, l window.Limit, n uint64) R {
	t.Helper()
	r, err := f(t.Context(), key, l, n)
	noError(t, err)
	return r
}

// connect returns a pool of a server, which is closed at the end of the test.
func connect(t testing.TB, s *testkit.Postgres, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(s.URL("pool_max_conns=3"))
	noError(t, err)
	for _, f := range change {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	noError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

var tables atomic.Int64

// newTable makes a table, and returns the options of its backends.
func newTable(t testing.TB, pool *pgxpool.Pool, opts ...postgresbackend.Option) []postgresbackend.Option {
	t.Helper()
	opts = append(opts, postgresbackend.WithTable(fmt.Sprintf("t%d_%d", os.Getpid(), tables.Add(1))))
	_, err := pool.Exec(context.Background(), postgresbackend.Schema(opts...))
	noError(t, err)
	return opts
}

// start starts a server, and returns a backend on it, with the pool.
func start(t testing.TB, change ...func(*pgxpool.Config)) (*postgresbackend.Backend, *pgxpool.Pool) {
	t.Helper()
	pool := connect(t, testkit.StartPostgres(t), change...)
	return postgresbackend.New(pool, newTable(t, pool)...), pool
}
