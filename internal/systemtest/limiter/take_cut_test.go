package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/window"
)

// Callers reserve, settle and are refused on a connection that is cut at each byte in turn. Whatever
// is lost, what they hold is counted, and never more than the limit is granted.
//
//evidence:takes Give-backs that are cut off after any byte, on servers of every value size, let no window grant more than its limit
func TestGiveBacksThatAreCutOff(t *testing.T) {
	for _, algorithm := range []throttr.Algorithm{window.FixedWindow, throttr.AlignedWindow} {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Run("uint8", func(t *testing.T) { testCutGiveBacks[uint8](t, algorithm) })
			t.Run("uint16", func(t *testing.T) { testCutGiveBacks[uint16](t, algorithm) })
			t.Run("uint32", func(t *testing.T) { testCutGiveBacks[uint32](t, algorithm) })
			t.Run("uint64", func(t *testing.T) { testCutGiveBacks[uint64](t, algorithm) })
		})
	}
}

// cutTakes is takes of one client in a run whose connection may be cut.
type cutTakes struct {
	*testing.T
	limiter, other *throttr.RateLimit
	what           string
	failed         int               // calls that have returned an error
	held           map[string]uint64 // what callers hold or have used, by key
}

const (
	cutLimit = 20
	cutScale = time.Minute
)

func testCutGiveBacks[T codec.Value](t *testing.T, algorithm throttr.Algorithm) {
	runs, lossy, lost := 0, 0, uint64(0)
	cutEverywhere(t, codec.Size[T](), func(t *testing.T, c *mockserver.Cut) *connections {
		srv, conns := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]())), new(connections)
		other := testkit.LimiterOf[T](t, srv, algorithm)
		testkit.Hits(t, other, 1, "another", cutScale, cutLimit) // so that it has its connections
		if c != nil {
			srv.Cut(*c)
		}
		client, err := throttr.Connect[T](t.Context(), testkit.WithoutRetries(throttr.Config{
			Servers: []string{srv.Addr()}, Dial: conns.dial(srv), MaxConns: 1,
		}))
		require.NoError(t, err)
		defer client.Close()
		m := &cutTakes{T: t, other: other, what: fmt.Sprintf("%+v", c), held: map[string]uint64{},
			limiter: testkit.NewRateLimit(client.Backend(), throttr.WithAlgorithm(algorithm))}
		n := m.run()
		runs++
		if n > 0 {
			lossy++
			lost += n
		}
		require.LessOrEqual(t, n, uint64(8+5), "a cut loses what one call has taken, at most")
		if c == nil {
			require.Zero(t, n, "nothing is lost without a cut")
			require.Zero(t, m.failed)
		}
		return conns
	})
	t.Logf("%d runs; %d of them have lost something, %d in all", runs, lossy, lost)
	require.Positive(t, lossy)
}

// run makes the calls, and returns how much of the windows was lost.
func (m *cutTakes) run() (lost uint64) {
	m.use([]uint64{8, 5}, []uint64{5, 3})
	m.use([]uint64{6, 6}, []uint64{0, 0})
	m.use([]uint64{7}, []uint64{2})
	// Another client takes what this one has seen free, so that its next takes are counted before they
	// are refused.
	if res, err := m.other.Take(m.Context(), "b", throttr.Limit{Max: cutLimit, Scale: cutScale}, 12); err == nil && res.Allowed {
		m.held["b"] += 12
	}
	m.use([]uint64{4, 7}, []uint64{1, 1})
	m.use([]uint64{3}, []uint64{0})

	for _, key := range []string{"a", "b"} {
		// What was added by a take that was refused can be lost, too: then the count may exceed the limit.
		n, err := m.other.Get(m.Context(), key, cutScale)
		require.NoError(m, err, m.what)
		require.GreaterOrEqual(m, n, m.held[key], "%s: more of %s is held than is counted", m.what, key)
		lost += n - m.held[key]
		for {
			res, err := m.other.Take(m.Context(), key, throttr.Limit{Max: cutLimit, Scale: cutScale}, 1)
			require.NoError(m, err, m.what)
			if !res.Allowed {
				break
			}
			m.held[key]++
			require.LessOrEqual(m, m.held[key], uint64(cutLimit), "%s: more of %s is granted than the limit", m.what, key)
		}
	}
	return lost
}

// use reserves some of the keys a and b, and commits what was used of it. The caller does not use the
// rest any more, whether or not it could be given back.
func (m *cutTakes) use(reserved, used []uint64) {
	takes := make([]throttr.Take, len(reserved))
	for i, n := range reserved {
		takes[i] = throttr.Take{Key: string(rune('a' + i)), Limit: throttr.Limit{Max: cutLimit, Scale: cutScale}, N: n}
	}
	rv, ok, err := m.limiter.Reserve(m.Context(), takes...)
	if err != nil {
		m.failed++
		return
	}
	if !ok {
		return
	}
	for _, l := range takes {
		n, err := m.other.Get(m.Context(), l.Key, cutScale)
		require.NoError(m, err, m.what)
		require.GreaterOrEqual(m, n, m.held[l.Key]+l.N, "%s: more of %s is held than is counted", m.what, l.Key)
	}
	if err := rv.Commit(m.Context(), used...); err != nil {
		m.failed++
	}
	for i, l := range takes {
		m.held[l.Key] += used[i]
	}
	require.NoError(m, rv.Cancel(m.Context()), "a reservation is settled once")
}
