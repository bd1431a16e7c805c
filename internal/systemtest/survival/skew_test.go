package survival_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// history is what happened to the records of windows on a server.
type history struct {
	mu       sync.Mutex // guards what follows
	opened   map[string]time.Time
	sweepers map[int]bool // the connections of sweepers
	removed  int          // records, by sweepers

	prolonged int
	wrong     []string
}

func newHistory() *history {
	return &history{opened: make(map[string]time.Time), sweepers: make(map[int]bool)}
}

// executed is told of each request that the server executes. The scale of all windows is a
// second.
func (h *history) executed(x mockserver.Exec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.Key == sweeperKey {
		h.sweepers[x.Conn] = true
	}
	part := strings.SplitN(x.Key, ":", 4)
	if len(part) != 4 || !x.Status {
		return
	}
	bucket, _ := strconv.ParseInt(part[2], 10, 64)
	switch x.Op {
	case codec.OpInsert:
		h.opened[x.Key] = x.Time
	case codec.OpPurge:
		if !h.sweepers[x.Conn] {
			return
		}
		h.removed++
		if age := x.Time.Sub(h.opened[x.Key]); age < time.Second {
			h.wrong = append(h.wrong, fmt.Sprintf("%s was removed after %v", x.Key, age))
		}
		if end := time.Unix(bucket+1, 0); x.Time.Before(end) {
			h.wrong = append(h.wrong, fmt.Sprintf("%s was removed while its name was of use", x.Key))
		}
	case codec.OpUpdate:
		u, ok := x.Request.(codec.Update[uint16])
		if !ok || u.Attribute != codec.TimeToLive {
			return
		}
		h.prolonged++
		if age := x.Time.Sub(h.opened[x.Key]); age < time.Second {
			h.wrong = append(h.wrong, fmt.Sprintf("%s was prolonged after %v", x.Key, age))
		}
	}
}

// sweeperKey is the key of a QUERY by which the test knows the connection of a sweeper.
const sweeperKey = "sweeper"

// newSweeper returns a sweeper that sweeps only if the test says so.
func newSweeper(t *testing.T, srv *mockserver.Server, p throttr.Parking, now func() time.Time) *sweep.Sweeper[uint16] {
	var calls conn.CallPool[uint16]
	server, err := pool.New(pool.Options[uint16]{
		Server: srv.Addr(), Calls: &calls, Parking: parking.Mode(p),
		Dialer: &dial.Dialer{
			Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
			Timeout: 5 * time.Second,
		},
		MaxConns: 1, MaxInFlight: 512, MaxQueued: 512, MaxRetries: -1, MaxResponse: 1 << 20,
		StallTimeout: 5 * time.Second, MaxConnAge: -1, MaxConnIdle: -1, HealthInterval: time.Minute,
		MinBackoff: time.Second, MaxBackoff: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	cl := calls.Get()
	conn.Add(cl, codec.Query{Key: []byte(sweeperKey)})
	_, _, err = server.Do(t.Context(), cl)
	require.NoError(t, err)
	return sweep.New(sweep.Options[uint16]{
		Server: server, Rule: &fixedwindow.Rule[uint16]{}, Calls: &calls, Now: now, MaxInFlight: 512,
	})
}

func TestSweepsDoNotDisturbSetAndReset(t *testing.T) {
	for _, mode := range []throttr.Parking{throttr.ParkingAlways, throttr.ParkingNever} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const scale, limit, skew = time.Second, 20, 900 * time.Millisecond
				h := newHistory()
				srv := testkit.InMemory(t, mockserver.WithRealCollector(),
					mockserver.WithObserver(h.executed))
				srv.Inject(mockserver.Fault{Delay: time.Millisecond})
				var mu sync.Mutex
				allowed := make(map[string]int)
				seed := uint64(0)
				begin := func(ahead time.Duration) *process[uint16] {
					p := start[uint16](t, srv, throttr.Config{Parking: mode}, testkit.ClockAhead(ahead))
					l := throttr.NewRateLimit(testkit.Traced(p.backend, func(key string, window int64, count, limit uint64) {
						if count <= limit {
							mu.Lock()
							allowed[fmt.Sprintf("rl:1s:%d:%s", window, key)]++
							mu.Unlock()
						}
					}))
					for range 4 {
						seed++
						r := rand.New(rand.NewPCG(6, seed))
						p.work.Go(func() {
							for p.ctx.Err() == nil {
								l.Hit(p.ctx, fmt.Sprint("hit:", r.IntN(5)), scale, limit)
								l.Hit(p.ctx, fmt.Sprint("set:", r.IntN(5)), scale, limit)
								switch r.IntN(40) {
								case 0:
									l.Reset(p.ctx, fmt.Sprint("set:", r.IntN(5)), scale)
								case 1:
									p.backend.Set(p.ctx, fmt.Sprint("set:", r.IntN(5)), scale, uint64(r.IntN(limit)))
								}
								time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
							}
						})
					}
					return p
				}
				aheads := []time.Duration{0, 0, skew, skew}
				var processes []*process[uint16]
				for _, ahead := range aheads {
					processes = append(processes, begin(ahead))
				}
				var sweeping sync.WaitGroup
				ctx, stop := context.WithTimeout(t.Context(), unlessRace(2*time.Minute))
				defer stop()
				for _, ahead := range []time.Duration{0, skew} {
					sweeper := newSweeper(t, srv, mode, func() time.Time { return time.Now().Add(ahead) })
					sweeping.Go(func() {
						for ctx.Err() == nil {
							sweeper.Sweep(ctx, time.Now())
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
				r := rand.New(rand.NewPCG(7, 7))
				for ctx.Err() == nil {
					i := r.IntN(len(aheads))
					processes[i].end()
					processes[i] = begin(aheads[i])
					time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
				}
				sweeping.Wait()
				for _, p := range processes {
					p.end()
				}
				h.mu.Lock()
				defer h.mu.Unlock()
				require.Empty(t, h.wrong)
				for name, n := range allowed {
					if strings.Contains(name, ":hit:") {
						require.LessOrEqual(t, n, limit, name)
					}
				}
				t.Log(len(h.opened), "windows,", h.removed, "removed and", h.prolonged, "prolonged by sweepers")
			})
		})
	}
}
