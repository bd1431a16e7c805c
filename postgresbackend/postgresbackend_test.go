package postgresbackend_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

// Open makes the table, also if several processes open at once, and says what it can't do.
func TestOpen(t *testing.T) {
	s := testkit.StartPostgres(t)
	pool := connect(t, s)
	run := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		noError(t, err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			b, err := throttr.Open(t.Context(), s.URL("durability=unlogged", "max_queued=100", "pool_max_conns=3"))
			if err != nil {
				t.Error(err)
				return
			}
			if err := errors.Join(takeOf(1, b, "k"), b.Ping(t.Context()), b.Close(), b.Close()); err != nil {
				t.Error(err)
			}
			if _, err := b.Take(t.Context(), "k", hourly, 1); !errors.Is(err, window.ErrClosed) || !errors.Is(b.Ping(t.Context()), window.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
	all.Wait()
	var persistence string
	noError(t, pool.QueryRow(t.Context(), "SELECT relpersistence::text FROM pg_class WHERE relname = 'throttr'").Scan(&persistence))
	expect(t, persistence == "u", "the table is %q", persistence)

	b, err := throttr.Open(t.Context(), s.URL("options=-c%20work_mem%3D65kB&application_name=a%20b+c"))
	noError(t, err)
	defer b.Close()
	var sessions int
	noError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'a b+c'").Scan(&sessions))
	expect(t, sessions > 0, "pgx does not get the options of the URL as they are")

	run("CREATE ROLE app LOGIN; CREATE SCHEMA limits; GRANT USAGE ON SCHEMA limits TO app")
	app := strings.Replace(s.URL("table=limits.counts"), "postgres@", "app:sesame@", 1)
	_, err = throttr.Open(t.Context(), app)
	expect(t, errors.Is(err, window.ErrUnavailable) && strings.Contains(err.Error(), `CREATE TABLE IF NOT EXISTS "limits"."counts"`) &&
		strings.Contains(err.Error(), "permission denied for schema limits") && strings.Count(err.Error(), "unavailable") == 1, "%v", err)
	schema := postgresbackend.Schema(postgresbackend.WithTable("limits.counts"))
	expect(t, !strings.Contains(schema, ";"), "some runners of migrations would cut this into several statements: %s", schema)
	run(schema)
	run("GRANT SELECT, INSERT, UPDATE ON limits.counts TO app")
	_, err = throttr.Open(t.Context(), app)
	expect(t, errors.Is(err, window.ErrUnavailable) && strings.Contains(err.Error(), "permission denied for table counts"), "%v", err)
	run("GRANT DELETE ON limits.counts TO app")
	b, err = throttr.Open(t.Context(), app)
	noError(t, err)
	defer b.Close()
	must(t, b.Take, "k", hourly, 1)
	run("DROP TABLE limits.counts")
	_, err = b.Take(t.Context(), "k", hourly, 1)
	expect(t, errors.Is(err, window.ErrUnavailable) && strings.Contains(err.Error(), "postgresbackend.Schema"), "%v", err)
}

// Some proxies of PostgreSQL keep no prepared statements: pgx has other modes for them.
func TestModesOfPgx(t *testing.T) {
	s := testkit.StartPostgres(t)
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		b, err := throttr.Open(t.Context(), s.URL("default_query_exec_mode="+mode))
		noError(t, err)
		defer b.Close()
		noError(t, takeOf(2, b, "k"))
		must(t, b.Take, "k", hourly, 1)
		for _, err := range b.List(t.Context()) {
			noError(t, err)
		}
		for want, scales := range [][]time.Duration{{time.Minute}, {time.Minute, time.Hour}} {
			n, err := b.Delete(t.Context(), "k", scales...)
			expect(t, n == want && err == nil, "%s: %d of %v are deleted, %v", mode, n, scales, err)
		}
		n, err := b.Delete(t.Context(), "k2")
		expect(t, n == 1 && err == nil, "%s: %d are deleted, %v", mode, n, err)
	}
}

// A backend that is opened lazily fails until its server is there, and then makes its table.
func TestLazyOpen(t *testing.T) {
	s := testkit.StartPostgres(t)
	s.Stop()
	_, err := throttr.Open(t.Context(), s.URL())
	expect(t, errors.Is(err, throttr.ErrUnavailable), "%v", err)
	b, err := throttr.Open(t.Context(), s.URL("lazy=true", "max_queued=0"))
	noError(t, err)
	defer b.Close()
	_, err = b.Take(t.Context(), "k", hourly, 1)
	expect(t, errors.Is(err, throttr.ErrUnavailable), "%v", err)
	s.Restart(t)
	for start := time.Now(); takeOf(1, b, "k") != nil; time.Sleep(10 * time.Millisecond) {
		expect(t, time.Since(start) < 20*time.Second, "%v", takeOf(1, b, "k"))
	}
}

func TestURLsThatAreMistakes(t *testing.T) {
	longTable := strings.Repeat("t", 64)
	for url, want := range map[string]string{
		"postgres://app:sesame@127.0.0.1/app?tabel=t":                  `"tabel" is unknown`,
		"postgres://app:sesame@127.0.0.1/app?lazy=sesame":              "lazy is malformed",
		"postgres://app:sesame@127.0.0.1/app?durability=sesame":        "durability is malformed",
		"postgres://app:sesame@127.0.0.1/app?max_queued=-1":            "max_queued is malformed",
		"postgres://app:sesame@127.0.0.1/app?table=" + longTable:       "table is malformed",
		"postgres://app:sesame@127.0.0.1/app?table=.counts":            "table is malformed",
		"postgres://app:sesame@127.0.0.1/app?sslmode=maybe":            "malformed",
		"postgres://app:ses%%ame@127.0.0.1/app":                        "malformed",
		"postgres://app:sesame/@127.0.0.1/app":                         "malformed",
		"postgres://app:1?sesame@127.0.0.1/app":                        "malformed",
		"postgres://app:1#sesame@127.0.0.1/app":                        "malformed",
		"postgres://app:s@sesame@127.0.0.1/app?sslmode=maybe":          "malformed",
		"postgres://127.0.0.1:sesame":                                  "malformed",
		"postgres://app@127.0.0.1/app?password=sesame&sslmode=sesame":  "malformed",
		"postgresql://app:sesame@127.0.0.1/app?pool_max_conns=sesame":  "malformed",
		"postgresql://app:sesame@127.0.0.1:99999/app?pool_max_conns=2": "malformed",
	} {
		_, err := throttr.Open(t.Context(), url)
		expect(t, errors.Is(err, throttr.ErrConfig) && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "ses"), "%s: %v", url, err)
	}
	postgresbackend.WithTable(longTable[1:])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := throttr.Open(ctx, "postgres://app:sesame@127.0.0.1:1/app")
	expect(t, errors.Is(err, context.Canceled), "%v", err)
	for want, f := range map[string]func(){
		"postgresbackend: New: pool is nil":                                         func() { postgresbackend.New(nil) },
		"postgresbackend: Schema: option 1 is nil":                                  func() { postgresbackend.Schema(nil) },
		"postgresbackend: WithClock: now is nil":                                    func() { postgresbackend.WithClock(nil) },
		"postgresbackend: WithTable: \"\\x00\" is no name of 1 to 63 bytes":         func() { postgresbackend.WithTable("\x00") },
		"postgresbackend: WithMaxQueued: -1 is negative":                            func() { postgresbackend.WithMaxQueued(-1) },
		"postgresbackend: WithDurability: none is none of async, full and unlogged": func() { postgresbackend.WithDurability("none") },
	} {
		func() {
			defer func() { expect(t, fmt.Sprint(recover()) == want, "the panic is not %q", want) }()
			f()
		}()
	}
}

// What is stored in a row, and is no record, is an error of the calls for its key and limit alone.
func TestARowThatIsNoRecordFailsItsOwnCalls(t *testing.T) {
	b, pool := start(t)
	must(t, b.Take, "broken", hourly, 1)
	_, err := pool.Exec(t.Context(), "UPDATE "+postgresbackend.Table(b)+" SET state = '\\x0977'")
	noError(t, err)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			key := []string{"whole", "broken"}[i%2]
			_, err := b.Take(t.Context(), key, hourly, 1)
			if (err != nil) != (i%2 == 1) || errors.Is(err, window.ErrUnavailable) {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	all.Wait()
	expect(t, must(t, b.Peek, "whole", hourly, 0).Count == 32, "calls for another key were not counted")
	_, err = pool.Exec(t.Context(), "INSERT INTO "+postgresbackend.Table(b)+" VALUES ('foreign', '\\x77', 0, 0, 0, '\\x01')")
	noError(t, err)
	listed := ""
	for l, err := range b.List(t.Context()) {
		listed += fmt.Sprint(l.Key, ":", err != nil, " ")
	}
	expect(t, listed == "whole:false :true ", "listed: %s", listed)
	expect(t, b.Exchange(t.Context(), nil, nil) != nil, "there are places in flight")
}

func TestConformance(t *testing.T) {
	s := testkit.StartPostgres(t)
	one, other := connect(t, s), connect(t, s)
	for _, a := range limits.Algorithms {
		subject := backendtest.Subject{
			Algorithm: a, Without: map[string]string{"Exchange": "no places in flight", "ListPlaces": "there are none"},
		}
		t.Run(a.String(), func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backendtest.Subject {
				s, clock := subject, backendtest.NewClock()
				opts := newTable(t, one, postgresbackend.WithClock(clock.Now), postgresbackend.Patient)
				s.Clock = clock
				s.Backend = postgresbackend.New(one, opts...)
				s.Second = postgresbackend.New(other, opts...)
				return s
			})
		})
	}
}

// If the clock goes back by more than a scale, what is counted starts at that time, also if all takes are refused.
func TestWindowsEndAlthoughTheClockHasGoneBack(t *testing.T) {
	pool := connect(t, testkit.StartPostgres(t))
	for _, a := range limits.Algorithms {
		clock := backendtest.NewClock()
		b := postgresbackend.New(pool, newTable(t, pool, postgresbackend.WithClock(clock.Now))...)
		l := window.Limit{Max: 5, Scale: time.Second, Algorithm: a}
		must(t, b.Take, "k", l, 5)
		clock.Advance(-time.Hour)
		for i := range 22 {
			w := must(t, b.Take, "k", l, 5)
			expect(t, w.Refused == (i < 10) || a != window.FixedWindow, "%v: take %d: %+v", a, i, w)
			if !w.Refused {
				break
			}
			expect(t, i < 21, "%v: nothing is granted after two scales: %+v", a, w)
			clock.Advance(100 * time.Millisecond)
		}
	}
}

// What a log would count above the largest limit is not kept.
func TestChargesOfALogCountUpToTheLargestLimit(t *testing.T) {
	b, _ := start(t)
	l := window.Limit{Max: 5, Scale: time.Hour, Algorithm: window.SlidingLog}
	for _, step := range []struct{ n, want uint64 }{{8, 8}, {postgresbackend.MaxLog - 3, postgresbackend.MaxLog}, {1 << 62, postgresbackend.MaxLog}} {
		w := must(t, b.Charge, "k", l, step.n)
		expect(t, w.Count == step.want, "a charge of %d: %+v, want a count of %d", step.n, w, step.want)
	}
}

// The transactions of Async do not wait for the disk. Those of Full do as the server says, by default.
func TestDurability(t *testing.T) {
	pool := connect(t, testkit.StartPostgres(t))
	for d, want := range map[postgresbackend.Durability]string{postgresbackend.Async: "off", postgresbackend.Full: "on"} {
		b := postgresbackend.New(pool, newTable(t, pool, postgresbackend.WithDurability(d))...)
		_, err := pool.Exec(t.Context(), "ALTER TABLE "+postgresbackend.Table(b)+" ADD waits text DEFAULT current_setting('synchronous_commit')")
		noError(t, err)
		noError(t, takeOf(1, b, "k"))
		var waits string
		noError(t, pool.QueryRow(t.Context(), "SELECT waits FROM "+postgresbackend.Table(b)).Scan(&waits))
		expect(t, waits == want, "%s: synchronous_commit is %s", d, waits)
	}
}

// List returns what is counted, of all keys or of some, page by page, and Delete ends it.
func TestList(t *testing.T) {
	pool := connect(t, testkit.StartPostgres(t))
	now := time.UnixMicro(1_893_456_000_000_000)
	b := postgresbackend.New(pool, newTable(t, pool, postgresbackend.WithClock(func() time.Time { return now }))...)
	bucket := window.Limit{Name: "b", Max: 10, Burst: 20, Scale: time.Hour, Algorithm: window.TokenBucket}
	long := strings.Repeat("long", 100)
	const keys = 300 // more than a page
	for i := range keys {
		must(t, b.Take, fmt.Sprint("k", i), hourly, uint64(1+i))
	}
	must(t, b.Take, "k7", bucket, 3)
	must(t, b.Take, long, hourly, 4)
	must(t, b.Take, "over", window.Limit{Max: 1, Scale: time.Millisecond, Algorithm: window.FixedWindow}, 1)
	noError(t, b.Reset(t.Context(), "k8", hourly))
	now = now.Add(time.Second)
	list := func(keys ...string) map[string]window.Listed {
		all := map[string]window.Listed{}
		for l, err := range b.List(t.Context(), keys...) {
			noError(t, err)
			all[l.Key+l.Limit.Name] = l
			if len(keys) == 1 && keys[0] == "k7" {
				break
			}
		}
		return all
	}
	all := list()
	expect(t, len(all) == keys+1 && all["k299"].Window.Count == 300 && all["k299"].Limit == hourly && !all["k299"].Digest, "%d: %+v", len(all), all["k299"])
	expect(t, all["k7b"].Limit == bucket && all["k7b"].Window.Count == 3 && all["k7b"].Window.ExpiresAt.After(now), "%+v", all["k7b"])
	some := list(long, "k8", "none", "k9")
	expect(t, len(some) == 2 && some["k9"].Window.Count == 10, "%+v", some)
	for key, l := range some {
		expect(t, l.Digest == (key != "k9") && (key == "k9" || strings.HasPrefix(key, "longlong") && l.Window.Count == 4), "%q: %+v", key, l)
	}
	before := b.Stats().Stores[0].Calls
	expect(t, len(list("k7")) == 1, "the loop has not ended")
	expect(t, b.Stats().Stores[0].Calls == before+1, "a loop that is left was not counted")
	n, err := b.Delete(t.Context(), "k7", []time.Duration{}...)
	expect(t, n == 2 && err == nil && len(list("k7")) == 0, "%d are deleted, %v", n, err)
}

// Windows that are over are deleted while their keys return: none is granted more than its limit, and none opens
// while another is active. By the time of the server, they have ended a minute ago when they have been over for half
// a second.
func TestRowsAreDeletedWhileKeysReturn(t *testing.T) {
	const grace = 500 * time.Millisecond // nothing is expected of a key of which a call has taken longer
	s := testkit.StartPostgres(t)
	pool := connect(t, s)
	clock := func() time.Time { return time.Now().Add(-time.Minute + grace).Truncate(time.Microsecond) }
	opts := newTable(t, pool, postgresbackend.Patient, postgresbackend.WithClock(clock))
	b := postgresbackend.New(pool, opts...)
	other := postgresbackend.New(connect(t, s), opts...)
	limit := window.Limit{Max: 3, Scale: 20 * time.Millisecond, Algorithm: window.FixedWindow}
	var mu sync.Mutex
	type opened struct {
		key string
		id  int64
	}
	granted, ends := map[opened]uint64{}, map[opened]time.Time{}
	slow := map[string]bool{}
	var all sync.WaitGroup
	var done atomic.Bool
	for g := range 8 {
		all.Go(func() {
			for i := 0; !done.Load(); i++ {
				start := time.Now()
				key := fmt.Sprint("k", start.UnixMilli()/300%5, i%2) // it returns after 1.2 s
				w, err := []*postgresbackend.Backend{b, other}[g%2].Take(t.Context(), key, limit, 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				slow[key] = slow[key] || time.Since(start) > grace
				if !w.Refused {
					granted[opened{key, w.ID}]++
					ends[opened{key, w.ID}] = w.ExpiresAt
				}
				mu.Unlock()
			}
		})
	}
	sweeper := postgresbackend.New(pool, opts[len(opts)-1]) // by the time of the server
	count := func(where string) (n int) {
		t.Helper()
		noError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+postgresbackend.Table(b)+" WHERE lim "+where).Scan(&n))
		return n
	}
	// sweep sweeps although it was done in the last minute.
	sweep := func(b *postgresbackend.Backend) {
		t.Helper()
		_, err := pool.Exec(t.Context(), "DELETE FROM "+postgresbackend.Table(b)+" WHERE lim = ''")
		noError(t, errors.Join(err, postgresbackend.Sweep(t.Context(), b)))
	}
	for range 400 {
		sweep(sweeper)
		time.Sleep(10 * time.Millisecond)
	}
	left := count("<> ''")
	done.Store(true)
	all.Wait()
	order := func(a, b opened) int { return cmp.Or(cmp.Compare(a.key, b.key), ends[a].Compare(ends[b])) }
	last := opened{}
	for _, w := range slices.SortedFunc(maps.Keys(ends), order) {
		expect(t, slow[w.key] || granted[w] <= limit.Max, "%v: %d are granted", w, granted[w])
		apart := ends[w].Sub(ends[last])
		expect(t, slow[w.key] || w.key != last.key || apart >= limit.Scale, "windows %v and %v end %v apart", last, w, apart)
		last = w
	}
	expect(t, left < 10 && len(granted) > 100, "%d of 10 rows were left, %d windows opened", left, len(granted))
	must(t, b.Take, "kept", hourly, 1)
	time.Sleep(grace + 2*limit.Scale)
	sweep(sweeper)
	must(t, b.Hit, "looked at", limitOf(window.TokenBucket, 5), 0)
	expect(t, count("<> ''") == 1, "%d rows are left, or a hit of nothing has made one", count("<> ''"))
	err := postgresbackend.Sweep(t.Context(), sweeper)
	expect(t, errors.Is(err, pgx.ErrNoRows), "a sweep follows another one at once: %v", err)
	_, err = pool.Exec(t.Context(), "UPDATE "+postgresbackend.Table(b)+" SET ends = ends + 1e18 WHERE lim = ''") // a clock that was 30 years ahead
	noError(t, errors.Join(err, postgresbackend.Sweep(t.Context(), sweeper)))
	sweep(b)
	expect(t, count("= ''") == 0, "a backend with a clock of its own sweeps")
}
