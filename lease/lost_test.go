package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/window"
)

// hits makes so many hits, one after the other, that blocks are large.
func hits(t *testing.T, b *lease.Backend) {
	for range 10 * lease.HotHits {
		require.True(t, hit(t, b, time.Hour, 1<<20, 1))
		synctest.Wait()
	}
	require.NotZero(t, b.Blocks().Held)
}

// Random callers of several processes, all of which are closed in the end: the store has counted what
// they were granted.
func TestNothingIsLostInOrderlyUse(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, age, func(t *testing.T, n *network, _ *lease.Backend) { testOrderly(t, n, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func testOrderly(t *testing.T, n *network, random *rand.Rand) {
	const keys = 3
	var granted [keys]atomic.Uint64
	limit := []uint64{50, 2000, 1 << 40}[random.IntN(3)]
	shortest := []time.Duration{0, 100 * time.Microsecond, 5 * time.Millisecond}[random.IntN(3)]
	closing := random.IntN(3) == 0 // while callers hit
	var all sync.WaitGroup
	var processes []*lease.Backend
	for range 1 + random.IntN(4) {
		away := &network{Backend: n.Backend, ways: ways{shortest: shortest, longest: shortest + shortest/2}}
		b := open(t, away, lease.WithMaxLease([]int{0, 7}[random.IntN(2)]))
		processes = append(processes, b)
		for range 1 + random.IntN(6) {
			seed, pauses := random.Uint64(), []time.Duration{10 * time.Microsecond, time.Millisecond, 60 * time.Millisecond}[random.IntN(3)]
			all.Go(func() {
				random := rand.New(rand.NewPCG(seed, 2))
				for range 300 {
					i, k := random.IntN(keys), uint64(1)
					if random.IntN(4) == 0 {
						k = random.Uint64N(5)
					}
					granted[i].Add(call(t, b, random, fmt.Sprint(i), limit, k))
					time.Sleep(rand.N(pauses))
				}
			})
		}
	}
	if closing {
		time.Sleep(100 * time.Millisecond)
	} else {
		all.Wait()
	}
	for _, b := range processes {
		require.NoError(t, b.Close())
		require.Zero(t, b.Blocks().Held)
	}
	all.Wait()
	lost := uint64(0)
	for _, b := range processes {
		lost += b.Blocks().Lost
	}
	require.Zero(t, lost)
	for i := range keys {
		require.Equal(t, granted[i].Load(), count(t, n, fmt.Sprint(i)), "key %d", i)
	}
}

// call makes a hit or a take, or a take of which some is given back, and returns what is counted of it.
// Some callers do not wait for long.
func call(t *testing.T, b *lease.Backend, random *rand.Rand, key string, limit, n uint64) uint64 {
	ctx := t.Context()
	if random.IntN(20) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(8000))*time.Microsecond)
		defer cancel()
		ctx = limited
	}
	if random.IntN(3) > 0 {
		if w, err := b.Hit(ctx, key, per(limit, time.Hour), n); err != nil || w.Refused {
			return 0
		}
		return n
	}
	w, err := b.Take(ctx, key, per(limit, time.Hour), n)
	if err != nil || w.Refused || n == 0 {
		return 0
	}
	back := random.Uint64N(n + 1)
	if given, err := b.GiveBack(t.Context(), key, per(1, time.Hour), back, w.ID); err == nil && given {
		n -= back
	}
	return n
}

// Whatever was taken before a Reset, or during it, is of the old window, also if the answer comes after it.
func TestAResetDropsBlocks(t *testing.T) {
	for name, during := range map[string]func(t *testing.T, f *network, b *lease.Backend) (after func()){
		"that is on its way": func(t *testing.T, f *network, b *lease.Backend) func() { return takes(t, f, b, 1) },
		"of two, on its way": func(t *testing.T, f *network, b *lease.Backend) func() { return takes(t, f, b, 2) },
		"that was taken meanwhile": func(t *testing.T, f *network, b *lease.Backend) func() {
			f.resets = func() { hits(t, b) }
			return func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, time.Hour, func(t *testing.T, n *network, b *lease.Backend) {
				hits(t, b)
				before := peek(t, n, key, per(1, time.Hour))
				after := during(t, n, b)
				require.NoError(t, b.Reset(t.Context(), key, per(1, time.Hour)))
				after()
				for range 100 {
					w := mustHit(t, b, key, per(1<<20, time.Hour), 1)
					require.NotEqual(t, before.ID, w.ID, "a place of the window before the Reset")
					synctest.Wait()
				}
			})
		})
	}
}

// takes makes hits of n until a take is under way, which ends with what it returns.
func takes(t *testing.T, f *network, b *lease.Backend, n uint64) (end func()) {
	held := make(chan struct{})
	f.took = func(context.Context, uint64, uint64, window.Window) error {
		<-held
		return nil
	}
	var callers sync.WaitGroup
	for range b.Blocks().Held + 1 {
		callers.Go(func() { hit(t, b, time.Hour, 1<<20, n) })
	}
	synctest.Wait()
	return func() {
		close(held)
		callers.Wait()
		synctest.Wait()
	}
}

// Other processes find places: a block has at most an eighth of those that were left.
func TestABlockHasAtMostAnEighthOfWhatIsLeft(t *testing.T) {
	for _, need := range []uint64{1, 3} {
		run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
			const limit = 10_000
			var mu sync.Mutex
			largest := 0.0
			n.took = func(_ context.Context, limit, n uint64, w window.Window) error {
				mu.Lock()
				defer mu.Unlock()
				if n > need && !w.Refused {
					largest = max(largest, float64(n)/float64(limit-(w.Count-n)))
				}
				return nil
			}
			for hit(t, b, time.Hour, limit, need) {
			}
			require.Greater(t, largest, 1.0/16, "blocks grow")
			require.LessOrEqual(t, largest, 1.0/8)
		})
	}
}

// Callers that do not wait any more need no places: those that were taken for them are given back at once.
func TestABlockHasNoPlacesForCallersThatHaveLeft(t *testing.T) {
	for name, first := range map[string]time.Duration{"while the take that they wait for is under way": 0, "while the next one is": 25 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			run(t, time.Minute, func(t *testing.T, n *network, b *lease.Backend) {
				const limit, answer = 100, 50 * time.Millisecond
				allow(t, b, lease.HotHits-1, limit)
				n.answer = answer
				var callers sync.WaitGroup
				callers.Go(func() { hit(t, b, time.Hour, limit, 1) })
				for range 80 {
					callers.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond+first*2)
						defer cancel()
						b.Hit(ctx, key, per(limit, time.Hour), 1)
					})
				}
				callers.Wait()
				time.Sleep(2 * answer)
				left := limit - count(t, n, key)
				for range 2 {
					hit(t, b, time.Hour, limit, 1)
				}
				require.LessOrEqual(t, b.Blocks().Held, left/8+1)
			})
		})
	}
}

// A block is as large as the speed of the hits asks for, also if the window that a Reset has ended was full.
func TestAResetForgetsTheCount(t *testing.T) {
	run(t, time.Minute, func(t *testing.T, n *network, b *lease.Backend) {
		const limit = 1000
		for hit(t, b, time.Hour, limit, 1) {
		}
		require.NoError(t, b.Reset(t.Context(), key, per(1, time.Hour)))
		require.True(t, hit(t, b, time.Hour, limit, 1))
		require.Greater(t, count(t, n, key), uint64(8))
	})
}

// When little is left of a limit, callers wait for those who ask. If each of 256 asked, it would be some 250 takes.
func TestCallersLeaveTheEndOfALimitToFewTakes(t *testing.T) {
	const answer = 20 * time.Millisecond
	run(t, 2*lease.HotHits*answer, func(t *testing.T, n *network, b *lease.Backend) {
		var granted atomic.Uint64
		n.answer = answer
		heat(t, b, 2000) // or first calls that come before the key is hot would go to the backend
		granted.Add(2 * lease.HotHits)
		n.takes.Store(0)
		begun := time.Now()
		var callers sync.WaitGroup
		for i := range 256 {
			callers.Go(func() {
				for ; time.Since(begun) < 2*time.Second; i++ {
					n := uint64(1 + i%3)
					w, err := b.Take(t.Context(), key, per(2000, time.Hour), n)
					assert.NoError(t, err)
					if !w.Refused {
						granted.Add(n)
					}
					time.Sleep(time.Duration(1+i*7%10) * time.Millisecond)
				}
			})
		}
		callers.Wait()
		require.EqualValues(t, 2000, granted.Load())
		require.Less(t, n.takes.Load(), int64(50))
	})
}

// The end of a take that callers share is not that of their contexts: its time limit says that the store is away, and
// Close that the backend is closed.
func TestASharedTakeThatHangs(t *testing.T) {
	for _, closes := range []bool{false, true} {
		run(t, age, func(t *testing.T, n *network, b *lease.Backend) {
			heat(t, b, 1<<20)
			time.Sleep(3 * age / 4) // the block is idle, and given back
			synctest.Wait()
			n.took = func(ctx context.Context, _, _ uint64, _ window.Window) error {
				<-ctx.Done()
				return ctx.Err()
			}
			before, begun := b.Blocks(), time.Now()
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() {
					_, err := b.Take(t.Context(), key, per(1<<20, time.Hour), 1)
					if closes {
						assert.Equal(t, window.ErrClosed, err)
						return
					}
					assert.ErrorIs(t, err, window.ErrUnavailable)
					assert.ErrorContains(t, err, "no answer within 5s")
				})
			}
			synctest.Wait()
			if closes {
				require.NoError(t, b.Close())
			}
			callers.Wait()
			require.Equal(t, map[bool]time.Duration{false: 5 * time.Second, true: time.Second}[closes], time.Since(begun))
			after := b.Blocks()
			require.NotZero(t, after.Lost, "for all that is known")
			require.Equal(t, before.Spent, after.Spent)
		})
	}
}

// ways are how messages travel.
type ways struct {
	shortest, longest time.Duration // of a way
	lose              float64       // the part of the requests that are lost, and of the answers
	imprecise         time.Duration // how much too late the ends of windows may be
}

// network is a backend that is some distance away, whose answers tell what was true when it answered. The tests use it
// in virtual time.
type network struct {
	window.Backend // where windows are kept
	ways
	answer time.Duration                                                     // how much longer takes take
	took   func(ctx context.Context, limit, n uint64, w window.Window) error // before the answer; or nil
	resets func()                                                            // before a Reset; or nil
	broken atomic.Bool                                                       // everything is lost
	takes  atomic.Int64
	seen   *windows // or nil
}

var errLost = errors.New("the connection is lost")

// way is the way of a request or an answer.
func (n *network) way(ctx context.Context) error {
	d := n.shortest
	if n.longest > n.shortest {
		d += rand.N(n.longest - n.shortest)
	}
	if n.broken.Load() || rand.Float64() < n.lose {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d + 10*n.longest):
			return errLost
		}
	}
	time.Sleep(d)
	return nil
}

// blur makes the end of a window as imprecise as it may be.
func (n *network) blur(w *window.Window) {
	if n.imprecise > 0 && w.ID != 0 {
		late := rand.N(n.imprecise)
		w.ExpiresAt, w.Left = w.ExpiresAt.Add(late), w.Left+late
	}
}

func (n *network) Check(window.Limit) (window.Traits, error) {
	return window.Traits{Precision: n.imprecise}, nil
}

func (n *network) Take(ctx context.Context, key string, l window.Limit, k uint64) (w window.Window, err error) {
	n.takes.Add(1)
	if err := n.way(ctx); err != nil {
		return w, err
	}
	w, err = n.Backend.Take(context.WithoutCancel(ctx), key, l, k)
	if err == nil && !w.Refused && n.seen != nil {
		n.seen.add(w, l.Scale)
	}
	n.blur(&w)
	if n.took != nil {
		err = n.took(ctx, l.Max, k, w)
	}
	time.Sleep(n.answer)
	if lost := n.way(ctx); lost != nil {
		return window.Window{}, lost
	}
	return w, err
}

func (n *network) Reset(ctx context.Context, key string, l window.Limit) error {
	if n.resets != nil {
		n.resets()
	}
	return n.Backend.Reset(ctx, key, l)
}

func (n *network) GiveBack(ctx context.Context, key string, l window.Limit, k uint64, id int64) (ok bool, err error) {
	if err := n.way(ctx); err != nil {
		return false, err
	}
	ok, err = n.Backend.GiveBack(context.WithoutCancel(ctx), key, l, k, id)
	if lost := n.way(ctx); lost != nil {
		return false, lost
	}
	return ok, err
}

// windows are the windows of one key that were open, and how many hits were allowed in each.
type windows struct {
	mu    sync.Mutex // guards what follows
	all   []span
	stray int // hits that were allowed while no window was open
}

type span struct {
	id         int64
	start, end time.Time
	allowed    uint64
}

// add adds a window that was just taken from.
func (ws *windows) add(w window.Window, scale time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 || ws.all[len(ws.all)-1].id != w.ID {
		ws.all = append(ws.all, span{id: w.ID, start: w.ExpiresAt.Add(-scale), end: w.ExpiresAt})
	}
}

// allow counts a hit of n that was allowed. If it got a place of a block, it was allowed now: virtual time has not passed
// since the clock was read. Otherwise the backend has allowed it, in the window that it says.
func (ws *windows) allow(n uint64, w window.Window, asked bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	at := time.Now()
	for i := range ws.all {
		s := &ws.all[i]
		if !asked && !at.Before(s.start) && at.Before(s.end) || asked && s.id == w.ID {
			s.allowed += n
			return
		}
	}
	ws.stray++
}
