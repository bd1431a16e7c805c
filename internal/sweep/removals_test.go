package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/mockserver"
)

// pairs inspects and removes records that come in pairs: "pair:1:a" and "pair:1:b". They are
// removed together, in steps that take a second, if both are over: their count is 0 then, and their TTL at most an
// hour.
type pairs struct {
	srv  *mockserver.Server
	fail string // the target whose removal fails

	mu           sync.Mutex // guards what follows
	removing     int        // calls under way
	mostRemoving int
	mostTargets  int
	targets      []string // in the order of the calls
}

func (p *pairs) inspect(name []byte, left uint64) Decision {
	if left > uint64(time.Hour/time.Second) || !bytes.HasPrefix(name, []byte("pair:")) {
		return Decision{}
	}
	return Decision{Interval: time.Hour, Over: true, Target: string(name[:len(name)-2])}
}

func (p *pairs) remove(ctx context.Context, targets []string) (records int, err error) {
	p.mu.Lock()
	p.removing++
	p.mostRemoving = max(p.mostRemoving, p.removing)
	p.mostTargets = max(p.mostTargets, len(targets))
	p.targets = append(p.targets, targets...)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.removing--
		p.mu.Unlock()
	}()
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
func sweeperOfPairs(t *testing.T, n int, dryRun bool, log io.Writer) (*pairs, *Sweeper) {
	srv := inMemory(t)
	for i := range n {
		srv.Set(fmt.Sprintf("pair:%d:a", i), 0, time.Hour)
		srv.Set(fmt.Sprintf("pair:%d:b", i), 0, time.Hour)
	}
	srv.Set("foreign", 1, time.Hour)
	p := &pairs{srv: srv}
	calls := conn.NewCalls(conn.SizeOf(2))
	s := New(Options{
		Server: serve(t, srv, calls, parking.Never, log), Inspect: p.inspect, Remove: p.remove, Calls: calls,
		DryRun: dryRun,
	})
	return p, s
}

func TestRemoveIsGivenEachTargetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		p, s := sweeperOfPairs(t, n, false, io.Discard)
		p.srv.Set("pair:7:b", 1, 2*time.Hour) // in use
		start := time.Now()
		r, err := s.Sweep(t.Context(), start)
		require.NoError(t, err)
		require.Equal(t, 2*n-2, r.Removed, "Sweep waits for the removals")
		require.Equal(t, 1, r.Foreign)
		require.ElementsMatch(t, []string{"pair:7:a", "pair:7:b", "foreign"}, p.srv.Keys())
		require.Len(t, p.targets, n)
		slices.Sort(p.targets)
		require.Len(t, slices.Compact(p.targets), n)
		require.LessOrEqual(t, p.mostTargets, maxChunk)
		require.Greater(t, p.mostRemoving, 10, "the next chunk is looked at while one is removed")
		require.Less(t, time.Since(start), 2*time.Second)
		require.EqualValues(t, 2*n-2, s.Stats().Removed)
	})
}

func TestRemovalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 1000, false, io.Discard)
		s.chunk = 2 // so that there are many chunks
		r, err := s.Sweep(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 2000, r.Removed)
		require.Equal(t, maxRemovals, p.mostRemoving)
	})
}

func TestRemovalsEndWithTheSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := sweeperOfPairs(t, 10, false, io.Discard)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := s.Sweep(ctx, time.Now())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, p.removing)
		require.Len(t, p.srv.Keys(), 21)
	})
}

// A LIST that runs while records are removed may have names twice (H14). An entry that is garbled, and so says that a
// record of ours is a buffer, hides the record neither after it nor before it. A dry run changes nothing.
func TestNamesThatAreListedTwiceCountOnce(t *testing.T) {
	for _, buffers := range [][2]bool{{false, false}, {true, false}, {false, true}} {
		synctest.Test(t, func(t *testing.T) {
			p, s := sweeperOfPairs(t, 10, true, io.Discard)
			var entries []codec.ListEntry[uint16]
			for _, buffer := range buffers {
				for _, name := range p.srv.Keys() {
					entries = append(entries, codec.ListEntry[uint16]{
						Key: []byte(name), Unit: codec.Seconds, Expires: uint64(len(entries)), Buffer: buffer,
					})
				}
			}
			list, err := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{entries}}.AppendBinary(nil)
			require.NoError(t, err)
			p.srv.Inject(mockserver.Fault{Op: codec.OpList, Replace: list})
			r, err := s.Sweep(t.Context(), time.Now())
			require.NoError(t, err)
			require.Equal(t, []int{20, 20}, []int{r.Records, r.Removed})
			require.True(t, r.Foreign == 1 || buffers != [2]bool{}, "%d foreign records", r.Foreign)
			require.Empty(t, p.targets)
			require.Len(t, p.srv.Keys(), 21)
		})
	}
}
