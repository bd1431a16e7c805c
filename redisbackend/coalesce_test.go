//go:build unix

package redisbackend_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// together makes n calls while the server does not respond, so that calls share requests.
func together(t *testing.T, s *testkit.Redis, n int, call func(i int)) {
	t.Helper()
	s.Freeze(t)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	time.Sleep(50 * time.Millisecond) // until all wait; if some do not, they share fewer requests
	s.Thaw(t)
	all.Wait()
}

// Equal takes at one time share an entry of a request. Each has a place and an ID of its own, under which it is given
// back. Equal looks see the same: none of them counts. Windows that one request opens, one after the other, have IDs of
// their own: what was taken of one is not given back to another.
func TestEqualTakesAreGivenBackEachForItself(t *testing.T) {
	each(t, func(t *testing.T, s *testkit.Redis, a window.Algorithm) {
		clock := backendtest.NewClock()
		b := redisbackend.New(connect(t, s), rediswindow.WithClock(clock.Now))
		l := limitOf(a, time.Hour, 7)
		ids := map[uint64]int64{} // of takes, by count
		take := func() {
			windows := make([]window.Window, 10) // of takes of 1, of which 7 fit
			together(t, s, len(windows), func(i int) { windows[i], _ = b.Take(context.Background(), "k", l, 1) })
			clear(ids)
			for _, w := range windows {
				if !w.Refused {
					ids[w.Count] = w.ID
				}
			}
			expect(t, len(ids) == 7, "%+v", windows)
		}
		givesBack := func(count uint64, want bool) {
			t.Helper()
			done, err := b.GiveBack(t.Context(), "k", l, 1, ids[count])
			expect(t, done == want && err == nil, "take %d: %v, %v", count, done, err)
		}
		take()
		ids[0] = ids[7] | math.MinInt64 // of no take
		givesBack(0, false)
		givesBack(7, true)
		givesBack(6, true)
		together(t, s, 10, func(int) {
			w, err := b.Peek(context.Background(), "k", l, 2)
			if err != nil || w.Count != 5 || w.Refused {
				t.Errorf("%+v, %v", w, err)
			}
		})
		if a == window.TokenBucket {
			noError(t, b.Reset(t.Context(), "k", l))
			take()
			clock.Advance(5*time.Hour/7 + time.Microsecond) // the first five have come back
			givesBack(5, false)
			givesBack(6, true)
		}
		opened, all := make([]window.Window, 20), map[int64]bool{}
		together(t, s, len(opened), func(i int) { opened[i], _ = b.Set(context.Background(), "k", l, 1) })
		for _, w := range opened {
			all[w.ID] = true
		}
		expect(t, a.Rolling() || len(all) == len(opened), "windows share IDs: %+v", opened)
	})
}

// Hits at one time share requests. What is wrong with a key fails the hits of that key alone, and what is wrong with
// the server fails all; none is sent again.
func TestHitsAtOneTimeShareRequests(t *testing.T) {
	const hits = 50
	for _, test := range []struct {
		commands [][]string
		good     []string          // keys
		bad      map[string]string // keys, with what their errors say
		matches  []error           // of these errors
	}{
		{good: []string{"a", "b", "c"}},
		{commands: [][]string{{"SCRIPT", "FLUSH"}}, good: []string{"a", "b", "c"}},
		{
			[][]string{{"SET", "throttr:{k:string}:v2", "1"}, {"HSET", "throttr:{k:text}:v2", "f3600000000", "text"}},
			[]string{"good", "other"}, map[string]string{"string": "WRONGTYPE", "text": "not a window"}, nil,
		},
		{[][]string{{"ACL", "SETUSER", "default", "resetkeys", "~throttr:{k:good*"}}, []string{"good", "good too"}, map[string]string{"bad": "NOPERM"}, nil},
		{[][]string{{"CONFIG", "SET", "maxmemory", "1"}}, nil, map[string]string{"a": "OOM", "b": "OOM", "c": "OOM"}, []error{window.ErrFull, window.ErrUnavailable}},
	} {
		s := testkit.StartRedis(t)
		b := redisbackend.New(connect(t, s))
		must(t, b.Hit, "another", limitOf(window.FixedWindow, time.Hour, 5), 1) // the server knows the script
		for _, command := range append(test.commands, []string{"CONFIG", "RESETSTAT"}) {
			s.Must(t, command...)
		}
		keys := test.good
		for key := range test.bad {
			keys = append(keys, key)
		}
		windows, errs := make([]window.Window, hits*len(keys)), make([]error, hits*len(keys))
		together(t, s, len(errs), func(i int) {
			windows[i], errs[i] = b.Hit(context.Background(), keys[i%len(keys)], limitOf(window.FixedWindow, time.Hour, 5), 1)
		})
		counts := map[string]bool{} // of keys
		for i, w := range windows {
			key, err := keys[i%len(keys)], errs[i]
			if text, bad := test.bad[key]; bad {
				expect(t, err != nil && strings.Contains(err.Error(), text), "%s: %v, want %s", key, err, text)
				for _, sentinel := range []error{window.ErrFull, window.ErrUnavailable} {
					expect(t, errors.Is(err, sentinel) == (test.matches != nil), "%v and %v", err, sentinel)
				}
				continue
			}
			noError(t, err)
			first := windows[i%len(keys)]
			expect(t, w.Count <= hits && w.ID == first.ID && w.ExpiresAt.Equal(first.ExpiresAt), "%+v in a window with %+v", w, first)
			counts[fmt.Sprint(key, w.Count)] = true
		}
		expect(t, len(counts) == hits*len(test.good), "%d counts of %v", len(counts), test.good)
		calls := timesCalled(t, s, "evalsha")
		expect(t, calls >= 1 && calls <= hits, "%d hits have made %d requests", hits*len(keys), calls)
	}
}

// The statistics of the server show the commands that calls send, and those of their scripts.
func TestCallsAreOneRoundTrip(t *testing.T) {
	s := testkit.StartRedis(t)
	b := redisbackend.New(connect(t, s))
	fixed := limitOf(window.FixedWindow, time.Hour, 100)
	hit := func(a window.Algorithm) func() error {
		return func() error { return errorOf(b.Hit(t.Context(), "k", limitOf(a, time.Hour, 1), 1)) }
	}
	takeAll := func() error {
		takes := []window.Take{fixed.For("a", 1), fixed.For("b", 1)}
		return errorOf(b.TakeAll(t.Context(), takes, make([]window.Window, len(takes))))
	}
	for _, test := range []struct {
		call       func() error
		gets, sets int // of ten calls; 0: any
	}{
		{hit(window.FixedWindow), 10, 10}, {takeAll, 40, 20}, {hit(window.TokenBucket), 0, 0}, {hit(window.SlidingWindow), 0, 0}, {hit(window.SlidingLog), 0, 0},
	} {
		noError(t, test.call()) // the server now has the script
		s.Must(t, "CONFIG", "RESETSTAT")
		for range 10 {
			noError(t, test.call())
		}
		scripts, gets, sets := timesCalled(t, s, "evalsha"), timesCalled(t, s, "hget"), timesCalled(t, s, "hset")
		expect(t, scripts == 10 && timesCalled(t, s, "eval") == 0, "%d scripts", scripts)
		expect(t, test.gets == 0 || gets == test.gets && sets == test.sets, "%d HGET, %d HSET", gets, sets)
		expect(t, test.gets == 0 || timesCalled(t, s, "pexpire") == 0, "the hash has had a time to live")
	}
}
