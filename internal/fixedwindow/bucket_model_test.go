package fixedwindow

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// bucketModel is what two clients must see of aligned or sliding windows that they share. It knows the
// count of each bucket, and what each take holds.
type bucketModel[T codec.Value] struct {
	*testing.T
	rng       *rand.Rand
	algorithm window.Algorithm
	scale     time.Duration
	unit      time.Duration // of the TTLs
	clients   []taker[T]
	counts    map[int64]uint64 // of the buckets
	held      []heldTake
	trace     []string
}

// heldTake is a take that was granted.
type heldTake struct {
	client int
	bucket int64
	id     int64
	n      uint64
	void   bool // its window was reset
}

const bucketLimit = 40

func (m *bucketModel[T]) bucket() int64 { return time.Now().UnixNano() / int64(m.scale) }

// count returns what a client must see as the count.
func (m *bucketModel[T]) count() uint64 {
	b := m.bucket()
	if m.algorithm == window.AlignedWindow {
		return m.counts[b]
	}
	left := uint64(time.Until(time.Unix(0, (b+1)*int64(m.scale))))
	weight := m.counts[b-1] * left // of the bucket before
	return m.counts[b] + (weight+uint64(m.scale)-1)/uint64(m.scale)
}

func (m *bucketModel[T]) logf(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf("%v ", time.Since(time.Unix(0, m.bucket()*int64(m.scale))))+fmt.Sprintf(format, args...))
}

func (m *bucketModel[T]) require(ok bool, format string, args ...any) {
	m.Helper()
	if !ok {
		m.Fatalf("%s\n%s", strings.Join(m.trace, "\n"), fmt.Sprintf(format, args...))
	}
}

// step does something at random.
func (m *bucketModel[T]) step() {
	i := m.rng.IntN(len(m.clients))
	c := m.clients[i]
	switch m.rng.IntN(12) {
	case 0, 1:
		time.Sleep(time.Duration(m.rng.Int64N(int64(m.scale / 2))))
	case 2:
		m.reset(i)
	case 3, 4, 5, 6, 7:
		m.take(i)
	default:
		m.giveBack()
	}
	want := m.count()
	m.require(want <= bucketLimit, "%d are counted", want)
	got := c.count()
	m.require(got == want, "client %d sees %d, want %d", i, got, want)
}

func (m *bucketModel[T]) take(i int) {
	n, before := 1+m.rng.Uint64N(12), m.count()
	w, granted := m.clients[i].take(bucketLimit, n)
	m.logf("client %d takes %d of window %d: %v", i, n, w.ID, granted)
	m.require(granted == (before+n <= bucketLimit), "the count was %d", before)
	if granted {
		b := m.bucket()
		m.counts[b] += n
		m.held = append(m.held, heldTake{i, b, w.ID, n, false})
	}
}

// reset ends the window by Reset or Set.
func (m *bucketModel[T]) reset(i int) {
	time.Sleep(2*m.unit + m.scale/400) // records that are made later can be told apart
	b := m.bucket()
	for j := range m.held {
		m.held[j].void = true
	}
	if m.rng.IntN(2) == 0 {
		m.logf("client %d resets", i)
		m.clients[i].reset()
		m.counts[b] = 0
	} else {
		m.counts[b] = m.rng.Uint64N(bucketLimit)
		m.logf("client %d sets %d", i, m.counts[b])
		m.clients[i].set(m.counts[b])
	}
	m.counts[b-1] = 0
}

// giveBack gives back a part of a take, or all of it.
func (m *bucketModel[T]) giveBack() {
	if len(m.held) == 0 {
		return
	}
	k := m.rng.IntN(len(m.held))
	h := &m.held[k]
	n := 1 + m.rng.Uint64N(h.n)
	given := m.clients[h.client].giveBack(h.id, n)
	m.logf("client %d gives %d back to window %d of bucket %d: %v", h.client, n, h.id, h.bucket, given)
	age := m.bucket() - h.bucket
	counts := age == 0 || age == 1 && m.algorithm == window.SlidingWindow
	m.require(given == (counts && !h.void), "void: %v, buckets since: %d", h.void, age)
	if given {
		m.counts[h.bucket] -= n
		h.n -= n
	}
	if h.n == 0 || !given {
		m.held = append(m.held[:k], m.held[k+1:]...)
	}
}

// Two clients take, give back, set and reset, one call at a time. Each of them always sees what was granted
// and not given back, and what can be given back is.
func TestModelOfBuckets(t *testing.T) {
	t.Run("uint8", testBucketModel[uint8])
	t.Run("uint16", testBucketModel[uint16])
	t.Run("uint32", testBucketModel[uint32])
	t.Run("uint64", testBucketModel[uint64])
}

func testBucketModel[T codec.Value](t *testing.T) {
	for _, a := range bucketAlgorithms {
		for seed := range uint64(15) {
			synctest.Test(t, func(t *testing.T) {
				srv := inMemory(t, mockserver.WithValueSize(codec.Size[T]()))
				const scale = 20 * time.Second
				timing, ok := timingFor(scale, a == window.SlidingWindow, maxValue[T]())
				require.True(t, ok)
				alignTo(scale)
				m := bucketModel[T]{
					T: t, rng: rand.New(rand.NewPCG(seed, 3)), algorithm: a, scale: scale, unit: timing.unit.Duration(),
					clients: []taker[T]{takerOf[T](t, srv, a, scale), takerOf[T](t, srv, a, scale)},
					counts:  make(map[int64]uint64),
				}
				for range 200 {
					m.step()
				}
				require.Empty(t, srv.Violations())
			})
		}
	}
}

// Three clients take and give back at the same time, on several goroutines each. They never hold more than
// the limit, and once all is settled the count is what was not given back.
func TestClientsThatGiveBackAtTheSameTimeHoldTheLimit(t *testing.T) {
	t.Run("uint8", testHeldByClients[uint8])
	t.Run("uint16", testHeldByClients[uint16])
	t.Run("uint64", testHeldByClients[uint64])
}

func testHeldByClients[T codec.Value](t *testing.T) {
	for _, a := range bucketAlgorithms {
		synctest.Test(t, func(t *testing.T) {
			const scale, limit = 40 * time.Second, 60
			srv := inMemory(t, mockserver.WithValueSize(codec.Size[T]()))
			alignTo(scale)
			begin := time.Now()
			var mu sync.Mutex // guards held, given and refused
			var held, given, refused uint64
			var all sync.WaitGroup
			clients := []taker[T]{takerOf[T](t, srv, a, scale), takerOf[T](t, srv, a, scale), takerOf[T](t, srv, a, scale)}
			for i := range 9 {
				c, random := clients[i%3], rand.New(rand.NewPCG(uint64(i), 5))
				all.Go(func() {
					for time.Since(begin) < scale/2 {
						n := 1 + random.Uint64N(20)
						w, _, err := c.Take(t.Context(), "k", limitOf(a, scale, limit), n)
						if err != nil {
							t.Error(err)
							return
						}
						if w.Refused {
							mu.Lock()
							refused++
							mu.Unlock()
							time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
							continue
						}
						mu.Lock()
						if held += n; held > limit {
							t.Errorf("%d are held", held)
						}
						mu.Unlock()
						time.Sleep(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
						back := random.Uint64N(n + 1)
						if time.Since(begin) < scale/4 {
							back = n
						}
						mu.Lock()
						held -= back // from now on others may have it
						mu.Unlock()
						ok, _, err := c.GiveBack(t.Context(), "k", limitOf(a, scale, 1), back, w.ID)
						if err != nil || !ok {
							t.Errorf("%d are not given back: %v", back, err)
						}
						mu.Lock()
						given += back
						mu.Unlock()
					}
				})
			}
			all.Wait()
			for _, c := range clients {
				require.Equal(t, held, c.count())
			}
			require.LessOrEqual(t, held, uint64(limit))
			require.Greater(t, given, uint64(10*limit))
			require.NotZero(t, refused)
		})
	}
}
