package postgresbackend_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/postgresbackend"
	"github.com/throttr-go/throttr/window"
)

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
