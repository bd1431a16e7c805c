package memory

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/window"
)

// Whatever calls are made at the same time, no window grants more than its limit from its start to its end, less
// what was given back. Keys are cleaned away, return, share counts, and move to other tables meanwhile.
func TestNoWindowGrantsMoreThanItsLimit(t *testing.T) {
	const most, keys, scale = 7, 60, 3 * time.Millisecond
	for _, room := range []int{40, 1000} {
		b := New(WithMaxKeys(room), WithCleanPeriod(time.Millisecond))
		type windowOf struct {
			key string
			end int64
		}
		var mu sync.Mutex
		granted := map[windowOf]uint64{}
		grant := func(key string, w window.Window, n uint64) {
			mu.Lock()
			defer mu.Unlock()
			granted[windowOf{key, w.ExpiresAt.UnixNano()}] += n
		}
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 4000 {
					name := strconv.Itoa(random.IntN(keys))
					key := name + strings.Repeat("k", random.IntN(2)*20)
					l := window.Limit{Max: most, Scale: scale, Algorithm: window.FixedWindow}
					other := window.Limit{Max: most, Scale: scale, Algorithm: window.FixedWindow, Name: "other"}
					n := 1 + random.Uint64N(3)
					switch random.IntN(20) {
					case 0:
						if err := b.Reset(t.Context(), key, l); err != nil {
							require.ErrorIs(t, err, window.ErrFull)
						}
					case 1:
						if _, err := b.Delete(t.Context(), key); err != nil {
							require.ErrorIs(t, err, window.ErrFull)
						}
					case 2, 3:
						takes, windows := []window.Take{l.For(key, n), other.For(key, n), l.For(name+"!", 1)}, make([]window.Window, 3)
						ok, err := b.TakeAll(t.Context(), takes, windows)
						require.NoError(t, err)
						for i, w := range windows {
							if ok {
								grant(takes[i].Key+takes[i].Limit.Name, w, takes[i].N)
							}
						}
					case 4, 5:
						w, err := b.Take(t.Context(), key, l, n)
						require.NoError(t, err)
						if w.Refused {
							break
						}
						grant(key, w, n)
						time.Sleep(time.Duration(random.IntN(int(time.Millisecond))))
						mu.Lock() // before another call is granted what is given back
						given, err := b.GiveBack(t.Context(), key, l, n, w.ID)
						if given {
							granted[windowOf{key, w.ExpiresAt.UnixNano()}] -= n
						}
						mu.Unlock()
						require.NoError(t, err)
					default:
						w, err := Decide(b, t.Context(), random.IntN(4) == 0, key, l, n)
						require.NoError(t, err)
						if !w.Refused {
							grant(key, w, n)
						}
					}
				}
			})
		}
		callers.Wait()
		full := 0
		for w, n := range granted {
			require.LessOrEqual(t, n, uint64(most), "%v", w)
			if n == most {
				full++
			}
		}
		require.Positive(t, full)
		require.NoError(t, b.Close())
	}
}
