package survival_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
)

// ledger has what processes were told of their windows, and what is wrong with it. It knows
// nothing of how windows are kept on servers.
type ledger struct {
	mu      sync.Mutex           // guards what follows
	allowed map[string][]attempt // hits, by key
	openers map[string][]attempt // those that were told to be the first of their window, by key
	checks  int                  // of counts that were certain
	wrong   []string
}

// attempt is a hit that was allowed. It was counted in the meantime.
type attempt struct{ sent, received time.Time }

func newLedger() *ledger {
	return &ledger{allowed: make(map[string][]attempt), openers: make(map[string][]attempt)}
}

func (l *ledger) report(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// shared hits a key that other processes hit, too.
func shared[T codec.Value](l *ledger, p *process[T], key string, scale time.Duration, limit uint64) {
	sent := time.Now()
	w, err := p.backend.Hit(p.ctx, key, throttr.Limit{Max: limit, Scale: scale, Algorithm: throttr.FixedWindow}, 1)
	if err != nil || w.Count > limit {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := attempt{sent, time.Now()}
	l.allowed[key] = append(l.allowed[key], a)
	if w.Count == 1 {
		l.openers[key] = append(l.openers[key], a)
	}
}

// own uses a key that no other process uses, until p is killed. So it knows the count of each
// window, from the beginning until the earliest possible end.
func own[T codec.Value](l *ledger, p *process[T], r *rand.Rand, key string, scale time.Duration) {
	const noLimit = 100
	for p.ctx.Err() == nil {
		begin, count := time.Now(), uint64(0)
		switch r.IntN(3) {
		case 0:
			if p.limiter.Reset(p.ctx, key, scale) != nil {
				return
			}
			begin = time.Now() // of a window that is not open yet
		case 1:
			count = 1 + r.Uint64N(20)
			if _, err := p.limiter.Set(p.ctx, key, scale, count); err != nil {
				return
			}
		default:
			n, err := p.limiter.Inc(p.ctx, key, scale, 1) // in the last window, or in a new one
			if err != nil {
				return
			}
			if n == 1 {
				count = 1
				break
			}
			time.Sleep(scale + time.Duration(r.Int64N(int64(scale/2)))) // the window of a Set is over
			continue
		}
		for time.Since(begin) < scale {
			time.Sleep(time.Duration(1 + r.Int64N(int64(scale/4))))
			n, want := uint64(0), count
			var err error
			if count == 0 || r.IntN(2) == 0 {
				n, err = p.limiter.Get(p.ctx, key, scale)
			} else {
				res, hitErr := p.limiter.Hit(p.ctx, key, scale, noLimit)
				count, want = count+1, count+1
				n, err = res.Count, hitErr
			}
			if err != nil {
				return
			}
			if time.Since(begin) >= scale {
				break
			}
			l.mu.Lock()
			l.checks++
			l.mu.Unlock()
			if n != want {
				l.report("%s: the count is %d, and should be %d, %v after the window began", key, n, want, time.Since(begin))
			}
		}
	}
}

// require fails the test if a window was lost, or has allowed too many hits.
func (l *ledger) require(t *testing.T, scale time.Duration, limit int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.wrong)
	windows := 0
	for key, all := range l.openers {
		slices.SortFunc(all, func(a, b attempt) int { return a.sent.Compare(b.sent) })
		windows += len(all)
		for i := 1; i < len(all); i++ {
			// A window ends a scale after it began, and the next one begins then at the earliest.
			require.GreaterOrEqual(t, all[i].received.Sub(all[i-1].sent), scale, "two windows of %s", key)
		}
	}
	for key, all := range l.openers {
		for _, o := range all {
			n := 0 // hits that were certainly counted in the window that o has opened
			for _, a := range l.allowed[key] {
				if a == o || !a.sent.Before(o.received) && !a.received.After(o.sent.Add(scale)) {
					n++
				}
			}
			require.LessOrEqual(t, n, limit, "%s, window of %v", key, o.sent)
		}
	}
	require.NotZero(t, windows)
	require.NotZero(t, l.checks)
	t.Log(windows, "windows of shared keys;", l.checks, "counts of other keys")
}
