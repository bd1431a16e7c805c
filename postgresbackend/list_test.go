package postgresbackend_test

import (
	"cmp"
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

	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

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
	const grace = 500 * time.Millisecond // longer than a request takes
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
	var all sync.WaitGroup
	var done atomic.Bool
	for g := range 8 {
		all.Go(func() {
			for i := 0; !done.Load(); i++ {
				key := fmt.Sprint("k", time.Now().UnixMilli()/300%5, i%2) // it returns after 1.2 s
				w, err := []*postgresbackend.Backend{b, other}[g%2].Take(t.Context(), key, limit, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if !w.Refused {
					mu.Lock()
					granted[opened{key, w.ID}]++
					ends[opened{key, w.ID}] = w.ExpiresAt
					mu.Unlock()
				}
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
		expect(t, granted[w] <= limit.Max, "%v: %d are granted", w, granted[w])
		apart := ends[w].Sub(ends[last])
		expect(t, w.key != last.key || apart >= limit.Scale, "windows %v and %v end %v apart", last, w, apart)
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
	sweep(b)
	expect(t, count("= ''") == 0, "a backend with a clock of its own sweeps")
}
