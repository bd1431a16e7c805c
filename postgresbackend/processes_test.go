package postgresbackend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
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

// flood makes takes of ten keys of several backends until ctx ends, and returns how many were granted of each, and how
// many may have been.
func flood(ctx context.Context, backends ...window.Backend) (granted, unknown *[10]atomic.Int64) {
	granted, unknown = new([10]atomic.Int64), new([10]atomic.Int64)
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := g; ctx.Err() == nil; i++ {
				each, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				keys := []int{i % 10, (i + 1 + g%9) % 10}
				takes := []window.Take{hourly.For(fmt.Sprint("k", keys[0]), 1), hourly.For(fmt.Sprint("k", keys[1]), 1)}
				if i%3 > 0 {
					takes = takes[:1]
				}
				ok, err := backends[g%len(backends)].TakeAll(each, takes, make([]window.Window, len(takes)))
				cancel()
				for _, k := range keys[:len(takes)] {
					switch {
					case err != nil:
						unknown[k].Add(1)
					case ok:
						granted[k].Add(1)
					}
				}
				if err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return granted, unknown
}

// expectCounted fails the test unless what was granted is counted, and no more than may have been. It returns the sum.
func expectCounted(t *testing.T, b window.Backend, granted, unknown *[10]atomic.Int64) (sum int64) {
	t.Helper()
	for i := range granted {
		counted := int64(must(t, b.Peek, fmt.Sprint("k", i), hourly, 0).Count)
		least := granted[i].Load()
		sum += least
		expect(t, counted >= least && counted <= least+unknown[i].Load(), "k%d: %d are counted, %d granted, %d unknown", i, counted, least, unknown[i].Load())
	}
	return sum
}

// A test runs itself as another process, with the URL of the backend in this variable.
const childURL = "THROTTR_POSTGRES_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		child(url)
		return
	}
	os.Exit(m.Run())
}

// child makes takes for a second, and prints how many were granted of each key.
func child(url string) {
	b, err := throttr.Open(context.Background(), url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	granted, _ := flood(ctx, b)
	for i := range granted {
		fmt.Println(granted[i].Load())
	}
}

// startChild starts a process.
func startChild(t *testing.T, url string) (cmd *exec.Cmd, output *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+url)
	output = new(bytes.Buffer)
	cmd.Stdout = output
	cmd.Stderr = output
	noError(t, cmd.Start())
	return cmd, output
}

// Two processes take of ten keys, one or two at a time, in any order, and a third one is killed meanwhile.
func TestProcessesThatTakeOfSeveralKeys(t *testing.T) {
	s := testkit.StartPostgres(t)
	pool := connect(t, s)
	for i := range testkit.Fewer(20) {
		table := fmt.Sprint("p", i)
		url := s.URL("table=" + table)
		one, ofOne := startChild(t, url)
		other, ofOther := startChild(t, url)
		killed, _ := startChild(t, url)
		time.Sleep(200*time.Millisecond + rand.N(600*time.Millisecond))
		noError(t, killed.Process.Kill())
		_ = killed.Wait()
		noError(t, one.Wait())
		noError(t, other.Wait())
		b := postgresbackend.New(pool, postgresbackend.WithTable(table))
		for k := range 10 {
			var granted, more uint64
			fmt.Fscan(ofOne, &granted)
			fmt.Fscan(ofOther, &more)
			counted := must(t, b.Peek, fmt.Sprint("k", k), hourly, 0).Count
			expect(t, granted > 0 && more > 0 && counted >= granted+more, "k%d: %d are counted, %d and %d granted", k, counted, granted, more)
		}
	}
	var deadlocks int64
	noError(t, pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'").Scan(&deadlocks))
	expect(t, deadlocks == 0, "there were %d deadlocks", deadlocks)
}

// A call that others get in the way of three times locks its row, and so do the next calls for its key: in the free
// lane, they would wait for locks again and again to find a conflict.
func TestACallWithConflictsLocksItsKey(t *testing.T) {
	s := testkit.StartPostgres(t)
	plain := connect(t, s)
	pool, p := tapPool(t, s)
	b := postgresbackend.New(pool, newTable(t, plain)...)
	noError(t, errors.Join(takeOf(1, b, "k"), takeOf(2, b, "k")))
	locks := "" // of the second round trips of a call
	var change func(*tapped)
	change = func(*tapped) { // the row, unless that is locked
		tag, err := plain.Exec(t.Context(), "UPDATE "+postgresbackend.Table(b)+
			" SET version = version + 1 WHERE key IN (SELECT key FROM "+postgresbackend.Table(b)+" WHERE key = 'k' FOR UPDATE SKIP LOCKED)")
		if err != nil {
			t.Error(err)
		}
		locks += fmt.Sprint(tag.RowsAffected() == 0, " ")
		p.arm(2, change)
	}
	for _, want := range []string{"false false false true ", "true "} {
		locks = ""
		p.arm(2, change)
		noError(t, takeOf(1, b, "k"))
		expect(t, locks == want, "the row is locked: %s, want %s", locks, want)
	}
	p.arm(0, nil)
	expect(t, must(t, b.Peek, "k", hourly, 0).Count == 4, "calls were not counted once each")
}

// If transactions are serializable by default, the server ends those that others have got in the way of: they are made
// again. No connection is more than a backend may have.
func TestADefaultOfSerializable(t *testing.T) {
	s := testkit.StartPostgres(t, "default_transaction_isolation=serializable")
	two := func(c *pgxpool.Config) { c.MaxConns = 2 }
	opts := newTable(t, connect(t, s))
	one, other := postgresbackend.New(connect(t, s, two), opts...), postgresbackend.New(connect(t, s, two), opts...)

	// The second round trip of a take waits for a transaction that then changes the row.
	pool := connect(t, s)
	must(t, one.Take, "changed", hourly, 1)
	tx, err := pool.Begin(t.Context())
	noError(t, err)
	defer tx.Rollback(context.Background())
	_, err = tx.Exec(t.Context(), "UPDATE "+postgresbackend.Table(one)+" SET version = 7")
	noError(t, err)
	done := make(chan error, 1)
	go func() { done <- takeOf(1, one, "changed") }()
	for start, waiting := time.Now(), 0; waiting == 0; time.Sleep(time.Millisecond) {
		noError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting))
		expect(t, time.Since(start) < 2*time.Second, "the take does not wait for the row")
	}
	noError(t, errors.Join(tx.Commit(t.Context()), <-done))
	counted := must(t, one.Peek, "changed", hourly, 0).Count
	expect(t, counted == 2, "%d are counted", counted)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	granted, unknown := flood(ctx, one, other)
	sum := expectCounted(t, one, granted, unknown)
	expect(t, sum > 100 && unknown[0].Load() < sum/10, "%d are granted, and %d of the first key failed", sum, unknown[0].Load())
	_, err = one.Delete(t.Context(), "k0")
	noError(t, err)
}
