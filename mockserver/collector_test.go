package mockserver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

var realCollector = mockserver.WithRealCollector()

// inTableOrder returns n keys, in the order of the server's table.
func inTableOrder(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("k", i)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if mockserver.TableBefore(a, b) {
			return -1
		}
		return 1
	})
	return keys
}

// patchTTL is an UPDATE that makes the TTL of key end so many units from now.
func patchTTL(key string, amount uint16.Value) uint16.Update {
	return uint16.Update{Attribute: codec.TimeToLive, Change: codec.Patch, Value: amount, Key: []byte(key)}
}

// runTime is how long a run of the collector takes (H12).
func runTime(records int) time.Duration {
	return 50*time.Microsecond + time.Duration(records)*350*time.Nanosecond
}

func TestTwoEventsWithinOneRunLockTheServerUp(t *testing.T) {
	const second = time.Second
	keys := inTableOrder(2)
	for name, c := range map[string]struct {
		ttls [2]time.Duration // of the first and the second record in table order
		when time.Duration
		text string
	}{
		"two expiries": {
			ttls: [2]time.Duration{second, second}, when: second,
			text: `its collector ran at 00:00:01.000000, which takes 50.7µs with 2 records, and the expiry of %q was due 50.7µs later`,
		},
		"the end of a grace, then an expiry": {
			ttls: [2]time.Duration{second, 11 * second}, when: 11 * second,
			text: `its collector ran at 00:00:11.000000, which takes 50.7µs with 2 records, and the expiry of %q was due 50.7µs later`,
		},
		"an expiry, then the end of a grace": {
			ttls: [2]time.Duration{11 * second, second}, when: 11 * second,
			text: `its collector ran at 00:00:11.000000, which takes 50.7µs with 2 records, and the end of the grace of %q was due 50.7µs later`,
		},
	} {
		for _, d := range []time.Duration{0, 1, runTime(2), runTime(2) + 1} {
			subtest(t, fmt.Sprint(name, ", apart ", d), func(t *testing.T, srv *mockserver.Server) {
				srv.Set(keys[0], 1, c.ttls[0])
				srv.Set(keys[1], 1, c.ttls[1]+d)
				srv.Advance(c.when - 1)
				require.False(t, srv.LockedUp())
				srv.Advance(1 + 2*d)
				require.Equal(t, d > 0 && d <= runTime(2), srv.LockedUp())
				if d == runTime(2) {
					require.Equal(t, []mockserver.Violation{
						{Rule: "H12", Text: "the server locked up: " + fmt.Sprintf(c.text, keys[1])},
					}, srv.Violations())
				}
			}, virtual, realCollector)
		}
	}
}

// twoTogether sets two records that expire within one run of the collector, the first of the table first.
func twoTogether(srv *mockserver.Server, keys []string) {
	srv.Set(keys[0], 1, time.Second)
	srv.Set(keys[1], 1, time.Second+20*time.Microsecond)
}

func TestViolationsFindsALockUpUnlessTheServerIsClosed(t *testing.T) {
	for _, closed := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *mockserver.Server) {
			twoTogether(srv, inTableOrder(2))
			if closed {
				require.NoError(t, srv.Close())
			}
			time.Sleep(2 * time.Second)
			require.Equal(t, closed, len(srv.Violations()) == 0)
		}, realCollector)
	}
}

func TestRestartEndsLockUp(t *testing.T) {
	for _, keep := range []bool{false, true} {
		bubble(t, func(t *testing.T, srv *mockserver.Server) {
			keys := inTableOrder(3)
			twoTogether(srv, keys)
			srv.Set(keys[2], 1, time.Hour)
			srv.Advance(time.Minute)
			require.True(t, srv.LockedUp())
			w := connect(t, srv)
			require.Empty(t, w.ask(query(keys[2])), "it accepts connections and never responds")
			require.Zero(t, srv.Publish("*", nil))
			require.False(t, w.closed())
			require.NoError(t, srv.Restart(keep))
			require.False(t, srv.LockedUp())
			want, expired := []string{}, 1
			if keep {
				want, expired = append(want, keys[2]), 2
			}
			require.Equal(t, want, srv.Keys())
			require.Equal(t, expired, srv.Expired(), "the collector was late for the second one, and it has expired all the same")
			require.Len(t, srv.Violations(), 1)
			require.Equal(t, "01", connect(t, srv).ask(insert("k", 1, 1, codec.Hours)))
			twoTogether(srv, keys)
			srv.Advance(time.Minute)
			require.True(t, srv.LockedUp(), "it can lock up again")
		}, virtual, realCollector)
	}
}

// naive is the collector as docs/internals/protocol.md describes it, in as few words as possible.
type naive struct {
	records map[string]*naiveRecord
	now     time.Duration
	timer   time.Duration // -1: not set
	expired int
	locked  bool
}

type naiveRecord struct {
	expires time.Duration
	dead    bool
}

func (n *naive) due(r *naiveRecord) time.Duration {
	if r.dead {
		return r.expires + 10*time.Second
	}
	return r.expires
}

func (n *naive) add(key string, ttl time.Duration) {
	r := &naiveRecord{expires: n.now + ttl}
	n.records[key] = r
	first := key
	for k, o := range n.records {
		if !o.dead && mockserver.TableBefore(k, first) {
			first = k
		}
	}
	if r.expires <= n.records[first].expires {
		n.timer = r.expires
	}
}

func (n *naive) advance(d time.Duration) {
	end := n.now + d
	for n.timer >= 0 && n.timer <= end && !n.locked {
		n.now = max(n.timer, n.now)
		took := runTime(len(n.records))
		for key, r := range n.records {
			switch {
			case r.dead && r.expires+10*time.Second <= n.now:
				delete(n.records, key)
			case !r.dead && r.expires <= n.now:
				r.dead = true
				n.expired++
			}
		}
		n.timer = -1
		for _, r := range n.records {
			if n.timer < 0 || n.due(r) < n.timer {
				n.timer = n.due(r)
			}
		}
		n.locked = n.timer >= 0 && n.timer <= n.now+took
	}
	n.now = end
}

func TestCollectorMatchesNaiveModel(t *testing.T) {
	lockUps := 0
	for seed := range uint64(100) {
		bubble(t, func(t *testing.T, srv *mockserver.Server) {
			r := rand.New(rand.NewPCG(seed, 0))
			w := connect(t, srv)
			n := &naive{records: map[string]*naiveRecord{}, timer: -1}
			keys := append(inTableOrder(8), "")
			for step := range 200 {
				key := keys[r.IntN(len(keys))]
				ttl := uint16.Value(r.IntN(300))
				old := n.records[key]
				want := "00"
				var got string
				switch r.IntN(5) {
				case 0:
					got = w.ask(insert(key, 1, ttl, codec.Seconds))
					if old == nil {
						want = "01"
						n.add(key, time.Duration(ttl)*time.Second)
					}
				case 1, 2:
					got = w.ask(patchTTL(key, ttl))
					if old != nil && !old.dead {
						want = "01"
						old.expires = n.now + time.Duration(ttl)*time.Second
						if key == "" {
							n.timer = old.expires
						}
					}
				case 3:
					got = w.ask(purge(key))
					if old != nil && !old.dead {
						want = "01"
						delete(n.records, key)
					}
				case 4:
					d := time.Duration(r.IntN(int(5 * time.Second)))
					srv.Advance(d)
					n.advance(d)
					want = ""
				}
				n.advance(0)
				require.Equal(t, want, got, "seed %d, step %d", seed, step)
				require.Equal(t, n.expired, srv.Expired(), "seed %d, step %d", seed, step)
				require.Equal(t, n.locked, srv.LockedUp(), "seed %d, step %d", seed, step)
				if n.locked {
					lockUps++
					break
				}
			}
		}, virtual, realCollector)
	}
	require.NotZero(t, lockUps)
	require.Less(t, lockUps, 100)
}
