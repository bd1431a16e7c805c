package limiter_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/internal/testkit/race"
	"github.com/throttr-go/throttr/mockserver"
)

// connections counts the bytes of a client's connections, in the order of dialing.
type connections struct {
	mu  sync.Mutex // guards all
	all []*testkit.Traffic
}

// dial returns a Dial that counts the bytes of connections to srv.
func (c *connections) dial(srv *mockserver.Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		bytes := new(testkit.Traffic)
		c.all = append(c.all, bytes)
		return bytes.Count(nc), nil
	}
}

// cutEverywhere runs a test without a cut, and then with a cut at each byte of the first connection, which hits
// share, and of the second one, on which windows are looked up and opened. The server has values of size bytes, and
// is parked.
func cutEverywhere(t *testing.T, size int, test func(*testing.T, *mockserver.Cut) *connections) {
	var whole *connections
	synctest.Test(t, func(t *testing.T) { whole = test(t, nil) })
	require.NotEmpty(t, whole.all)
	probe, err := codec.AppendProbe(nil, make([]byte, 16)) // if it is cut, it can leave a record
	require.NoError(t, err)
	for number, bytes := range whole.all[:min(2, len(whole.all))] {
		for _, d := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
			// After the probe, a QUERY and an UPDATE of the empty key keep the server parked, and WHOAMI
			// and two UNSUBSCRIBEs have it send no EVENTs.
			from := []int{len(probe) + 2 + 3 + 1 + 34 + 4 + size, codec.ProbeResponses + 2 + 2*size + 1 + 17 + 1 + 1}[d]
			last := int(bytes[d].Load())
			require.Greater(t, last, from)
			t.Run(fmt.Sprintf("connection %d, %v", number, d), func(t *testing.T) {
				step := 1
				if !testkit.Thorough() {
					step = 7
				}
				for after := from; after < last+20 && !t.Failed(); after += step {
					synctest.Test(t, func(t *testing.T) { test(t, &mockserver.Cut{Direction: d, After: after, Skip: number, Times: 1}) })
				}
			})
		}
	}
}

// Callers reserve, settle and are refused on a connection that is cut at each byte in turn. Whatever
// is lost, what they hold is counted, and never more than the limit is granted.
func TestGiveBacksThatAreCutOff(t *testing.T) {
	ofEachSize(t, testCutGiveBacks[uint8], testCutGiveBacks[uint16], testCutGiveBacks[uint32], testCutGiveBacks[uint64])
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

func testCutGiveBacks[T codec.Value](t *testing.T) {
	runs, lossy, lost := 0, 0, uint64(0)
	cutEverywhere(t, codec.Size[T](), func(t *testing.T, c *mockserver.Cut) *connections {
		srv, conns := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]())), new(connections)
		other := testkit.Limiter[T](t, srv)
		testkit.Hits(t, other, 1, "another", cutScale, cutLimit) // so that it has its connections
		if c != nil {
			srv.Cut(*c)
		}
		client, err := throttr.Connect[T](t.Context(), throttr.Config{
			Servers: []string{srv.Addr()}, Dial: conns.dial(srv), MaxConns: 1, MaxRetries: -1,
		})
		require.NoError(t, err)
		defer client.Close()
		m := &cutTakes{T: t, other: other, what: fmt.Sprintf("%+v", c), held: map[string]uint64{},
			limiter: testkit.NewRateLimit(client.Backend())}
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

func TestRecordsAreRemovedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(1))
		l := testkit.Limiter[uint8](t, srv)
		for i := range 600 {
			testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 5)
		}
		time.Sleep(time.Minute)
		srv.Refuse(true)
		srv.Disconnect()
		time.Sleep(150 * time.Second) // the margin of a record is 195 s
		require.Len(t, testkit.Keys(srv), 600)
		srv.Refuse(false)
		requireRemoved(t, srv, 10*time.Second)
	})
}

// The server has become so far away, or takes so few requests at a time, that the records of many keys are removed in
// more calls than fit one guard.
func TestRecordsOfManyKeysAreRemovedFromServersFarAway(t *testing.T) {
	for _, test := range []struct {
		keys        int
		scale, away time.Duration
		maxInFlight int
	}{
		{3000, time.Second, 140 * time.Millisecond, 0},
		{3000, 2 * time.Second, 140 * time.Millisecond, 0},
		{400, time.Second, 20 * time.Millisecond, 1},
		{400, 10 * time.Second, 20 * time.Millisecond, 1},
	} {
		if race.Enabled {
			test.keys /= 4
		}
		testkit.Bubble(t, fmt.Sprint(test), func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector())
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
				MaxInFlight: test.maxInFlight, Parking: throttr.ParkingNever,
			}))
			l := testkit.NewRateLimit(client.Backend())
			for range 2 { // so that each key has two records
				for i := range test.keys {
					testkit.Hits(t, l, 1, fmt.Sprint(i), test.scale, 1)
				}
				time.Sleep(test.scale)
			}
			srv.Inject(mockserver.Fault{Delay: test.away})
			requireRemoved(t, srv, idle[uint16](t, test.scale)+30*time.Second)
		})
	}
}

// requireRemoved lets time pass in a bubble until all windows are over, and fails the test if a
// record is left or has expired.
func requireRemoved(t *testing.T, srv *mockserver.Server, after time.Duration) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if left, expired := testkit.Keys(srv), srv.Expired(); len(left) > 0 || expired > 0 {
		t.Fatalf("records were not removed: %q; %d expired on the server", left, expired)
	}
}

// idle returns how long after a hit the records of a key are removed, if the hit is its last and
// servers respond.
func idle[T codec.Value](t testing.TB, scale time.Duration) time.Duration {
	t.Helper()
	b, ok := slot.BandsFor(scale, uint64(^T(0)))
	if !ok {
		t.Fatalf("%v has no bands", scale)
	}
	return time.Duration(b.Top-b.Doom+1)*b.Unit + 10*b.Guard
}

func TestMemoryOfABackendIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxWindows = 128
		srv := testkit.InMemory(t)
		backend := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{})).Backend(throttr.WithMaxWindows(maxWindows))
		l := testkit.NewRateLimit(backend)
		for i := range 4 * maxWindows {
			require.Equal(t, 1, testkit.Hits(t, l, 1, fmt.Sprint(i), time.Minute, 2))
			require.LessOrEqual(t, backend.Stats().Windows, 5*maxWindows)
		}
		require.Equal(t, 4*maxWindows, backend.Records().Records)
		_, err := l.Hit(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		require.NotErrorIs(t, err, throttr.ErrOverloaded)
		require.True(t, testkit.SafeToRetry(err))
		_, err = l.Set(t.Context(), "one more", time.Minute, 2)
		require.ErrorIs(t, err, throttr.ErrFull)
		for i := range 4 * maxWindows { // forgotten windows keep their counts, on the server
			require.Equal(t, 1, testkit.Hits(t, l, 2, fmt.Sprint(i), time.Minute, 2))
		}
		_, err = l.Get(t.Context(), "read only", time.Minute)
		require.NoError(t, err)
		requireRemoved(t, srv, idle[uint16](t, time.Minute))
		require.Zero(t, backend.Records().Records)
		require.LessOrEqual(t, backend.Stats().Windows, maxWindows)
		require.Equal(t, 1, testkit.Hits(t, l, 1, "one more", time.Minute, 2))
	})
}
