package survival_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// listOf returns a LIST of counters whose TTLs are over.
func listOf(t *testing.T, names []string) []byte {
	var entries []codec.ListEntry[uint16]
	for _, name := range names {
		entries = append(entries, codec.ListEntry[uint16]{Key: []byte(name), Unit: codec.Seconds, Expires: 1})
	}
	b, err := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{entries}}.AppendBinary(nil)
	require.NoError(t, err)
	return b
}

func TestWrongListsDoNoHarm(t *testing.T) {
	for _, mode := range []throttr.Parking{throttr.ParkingAlways, throttr.ParkingNever} {
		testkit.Bubble(t, fmt.Sprint(mode), func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, true))
			srv.Set("somebody's", 7, 24*time.Hour)
			cfg := throttr.Config{Parking: mode}
			sweeper := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{Parking: mode, MaxRetries: -1}))
			user, open := start[uint16](t, srv, cfg), keys(20)
			for _, key := range open {
				testkit.Hits(t, user.limiter, 3, key, time.Hour, 10)
			}
			used := testkit.Keys(srv)
			r := rand.New(rand.NewPCG(8, 8))
			broken, removed := 0, 0
			for i := range testkit.Fewer(300) {
				p := start[uint16](t, srv, cfg)
				for j := range 5 {
					testkit.Hits(t, p.limiter, 1, fmt.Sprint("orphan:", i, ":", j), time.Second, 10)
				}
				p.end()
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				names := srv.Keys() // in the LIST, all have expired, and others do not exist
				for _, name := range srv.Keys() {
					names = append(names, name+"0", name[:len(name)/2])
				}
				list := listOf(t, append(names, "", "never"))
				fault := mockserver.Fault{Op: codec.OpList, Replace: list}
				switch r.IntN(5) {
				case 1:
					fault.Replace = list[:r.IntN(len(list)-1)+1]
				case 2:
					list[9+r.IntN(len(list)-9)] ^= byte(1 + r.IntN(255))
				case 3:
					fault = mockserver.Fault{Op: codec.OpList, Disconnect: true}
				case 4:
					fault.Replace = nil // the list of the server
				}
				undo := srv.Inject(fault)
				result, err := sweeper.Sweep(t.Context(), false)
				removed += result[0].Removed
				undo()
				if err != nil {
					broken++
					sweeper.Sweep(t.Context(), false) // orphans expire without a LIST that is complete
				}
				require.Subset(t, testkit.Keys(srv), used)
			}
			for _, key := range open {
				n, err := user.limiter.Get(t.Context(), key, time.Hour)
				require.NoError(t, err)
				require.EqualValues(t, 3, n, key)
			}
			require.Greater(t, broken, testkit.Fewer(30))
			require.Greater(t, removed, testkit.Fewer(50))
			user.end()
			start[uint16](t, srv, cfg)
			time.Sleep(3*time.Hour + sweepTime)
			require.Equal(t, []string{"somebody's"}, testkit.Keys(srv))
			n, _ := srv.Counter("somebody's")
			require.EqualValues(t, 7, n)
			require.Zero(t, srv.Expired())
		})
	}
}

// hidden are ways in which a LIST can hide foreign records. Each returns the names of the LIST, given
// those of our records and of the foreign ones.
var hidden = map[string]func(ours, foreign []string) []string{
	"nothing is listed": func(_, _ []string) []string { return nil },
	"left out":          func(ours, _ []string) []string { return ours },
	"garbled": func(ours, foreign []string) []string {
		for _, name := range foreign {
			ours = append(ours, strings.Repeat("\xff", len(name)))
		}
		return ours
	},
	"names that do not exist": func(ours, foreign []string) []string {
		for i := range foreign {
			ours = append(ours, fmt.Sprint(ours[0], i))
		}
		return ours
	},
	"our names twice": func(ours, foreign []string) []string { return append(ours, ours[:len(foreign)]...) },
	"the leader's name twice": func(ours, foreign []string) []string {
		return append(ours, slices.Repeat([]string{sweep.LeaderKey}, len(foreign))...)
	},
}

func TestServerWithHiddenForeignRecordsIsNotParked(t *testing.T) {
	for name, names := range hidden {
		for _, busy := range []bool{false, true} {
			testkit.Bubble(t, fmt.Sprintf("%s/busy %v", name, busy), func(t *testing.T) {
				srv := testkit.InMemory(t, mockserver.WithRealCollector(), mockserver.WithHazard(mockserver.GarbledList, busy))
				foreign := []string{"somebody's", "jobs"}
				for _, name := range foreign {
					srv.Set(name, 7, 24*time.Hour)
				}
				first := start[uint16](t, srv, throttr.Config{Parking: throttr.ParkingNever})
				for _, key := range keys(20) {
					testkit.Hits(t, first.limiter, 1, key, time.Minute, 100)
				}
				srv.Delete(sweep.LeaderKey)
				hide := func() (undo func()) {
					ours := slices.DeleteFunc(srv.Keys(), func(name string) bool { return slices.Contains(foreign, name) })
					return srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: listOf(t, names(ours, foreign))})
				}
				undo := hide()
				p := start[uint16](t, srv, throttr.Config{})
				scale, n := time.Minute, 20
				if busy {
					scale, n = time.Second, 10_000
				}
				r := rand.New(rand.NewPCG(21, 21))
				for range 4 {
					p.hit(r, keys(n), scale, 20*time.Millisecond, 100)
				}
				for range testkit.Fewer(200) {
					time.Sleep(500 * time.Millisecond)
					undo()
					undo = hide()
					require.False(t, p.client.Stats().Servers[0].Parked)
				}
				require.NotContains(t, srv.Keys(), "")
				require.NotZero(t, srv.Requests(codec.OpList))
				p.end()
			})
		}
	}
}
