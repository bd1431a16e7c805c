package redisbackend_test

import (
	"testing"
	"time"

	"github.com/throttr-go/throttr/backendtest"
	"github.com/throttr-go/throttr/redisbackend"
	"github.com/throttr-go/throttr/window"
)

func TestTry(t *testing.T) {
	client := startServer(t).connect()
	for _, a := range []window.Algorithm{window.TokenBucket, window.Sliding, window.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) {
			clock := backendtest.NewClock()
			b := redisbackend.New(client, redisbackend.WithClock(clock.Now), redisbackend.WithAlgorithm(a))
			for i := range 12 {
				w, err := b.Hit(t.Context(), "k", time.Second, 7, 1)
				t.Log(i, w.Count, w.Refused, w.Left, w.RetryAfter, w.ID, err)
			}
			w, err := b.Get(t.Context(), "k", time.Second)
			t.Log(w.Count, w.Left, err)
			clock.Advance(time.Second + 300*time.Millisecond)
			for i := range 9 {
				w, err := b.Hit(t.Context(), "k", time.Second, 7, 1)
				t.Log(i, w.Count, w.Refused, w.Left, w.RetryAfter, w.ID, err)
				if i == 4 {
					ok, err := b.GiveBack(t.Context(), "k", time.Second, w.ID, 1)
					t.Log(ok, err)
				}
				clock.Advance(20 * time.Millisecond)
			}
			w, err = b.Inc(t.Context(), "k", time.Second, 5)
			t.Log(w.Count, w.Left, err)
			n, err := b.Delete(t.Context(), "k")
			t.Log(n, err)
			w, err = b.Set(t.Context(), "k", time.Second, 5)
			t.Log(w.Count, w.Left, err)
			w, err = b.Hit(t.Context(), "k", time.Second, 7, 1)
			t.Log(w.Count, w.Left, err)
		})
	}
}
