package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
)

// pairs inspects and removes records that come in pairs: "pair:1:a" and "pair:1:b". They are
// removed together, in a second, if both are over: their count is 0 then, and their TTL at most an
// hour.
type pairs struct {
	srv     *mockserver.Server
	fail    string   // the target whose removal fails
	targets []string // in the order of the calls
}

func (p *pairs) inspect(name []byte, left uint64) Decision {
	if left > uint64(time.Hour/time.Second) || !bytes.HasPrefix(name, []byte("pair:")) {
		return Decision{}
	}
	return Decision{Interval: time.Hour, Over: true, Target: string(name[:len(name)-2])}
}

func (p *pairs) remove(ctx context.Context, targets []string) (records int, err error) {
	p.targets = append(p.targets, targets...)
	if !pause(ctx, time.Second) {
		return 0, ctx.Err()
	}
	for _, target := range targets {
		a, _ := p.srv.Counter(target + ":a")
		b, _ := p.srv.Counter(target + ":b")
		switch {
		case target == p.fail:
			err = errPair
		case a == 0 && b == 0:
			p.srv.Delete(target + ":a")
			p.srv.Delete(target + ":b")
			records += 2
		}
	}
	return records, err
}

var errPair = errors.New("a pair that can't be removed")

// sweeperOfPairs returns a server with pairs that are over, and a sweeper for them.
func sweeperOfPairs(t *testing.T, n int, dryRun bool) (*pairs, *Sweeper) {
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
	for i := range n {
		srv.Set(fmt.Sprintf("pair:%d:a", i), 0, time.Hour)
		srv.Set(fmt.Sprintf("pair:%d:b", i), 0, time.Hour)
	}
	srv.Set("foreign", 1, time.Hour)
	p := &pairs{srv: srv}
	calls := conn.NewCalls(conn.SizeOf(2))
	s := New(Options{
		Server: connect(t, srv, calls), Inspect: p.inspect, Remove: p.remove, Calls: calls,
		MaxInFlight: 512, DryRun: dryRun,
	})
	return p, s
}

// A Remove is given each target once.
func TestSweepsRemoveWhatIsOver(t *testing.T) {
	const n = 3000
	for name, c := range map[string]struct {
		dryRun  bool
		fail    string
		timeout time.Duration
		removed int
		err     error
		left    []string
	}{
		"all":          {timeout: time.Minute, removed: 2*n - 2, left: []string{"pair:7:a", "pair:7:b", "foreign"}},
		"one fails":    {timeout: time.Minute, fail: "pair:3", removed: 2*n - 4, err: errPair, left: []string{"pair:3:a", "pair:3:b", "pair:7:a", "pair:7:b", "foreign"}},
		"in time":      {timeout: time.Second / 2, err: context.DeadlineExceeded},
		"in a dry run": {timeout: time.Minute, dryRun: true, removed: 2*n - 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := sweeperOfPairs(t, n, c.dryRun)
				p.fail = c.fail
				p.srv.Set("pair:7:b", 1, 2*time.Hour) // in use
				ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
				defer cancel()
				r, err := s.Sweep(ctx, time.Now())
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.removed, r.Removed, "Sweep waits for the removals")
				require.Equal(t, 1, r.Foreign)
				require.Zero(t, p.srv.Requests(codec.OpPurge), "that is left to the Remove")
				if c.left == nil {
					require.Len(t, p.srv.Keys(), 2*n+1)
				} else {
					require.ElementsMatch(t, c.left, p.srv.Keys())
				}
				if c.dryRun {
					require.Empty(t, p.targets)
				} else {
					require.Len(t, p.targets, n)
					require.EqualValues(t, c.removed, s.Stats().Removed)
				}
			})
		})
	}
}
