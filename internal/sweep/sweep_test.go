package sweep

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/mockserver"
)

// link is a Server with one connection.
type link struct {
	conn   *conn.Conn[uint16]
	parked bool
}

func connect(t *testing.T, srv *mockserver.Server, calls *conn.CallPool[uint16]) *link {
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	c := conn.New(nc, nil, conn.Options[uint16]{
		MaxInFlight: 512, MaxQueued: 512, StallTimeout: time.Minute, Calls: calls, Counters: &conn.Counters{},
	})
	t.Cleanup(func() { c.Close(errors.New("the test is over")) })
	return &link{conn: c}
}

func (l *link) Do(ctx context.Context, cl *conn.Call[uint16]) (owned, sent bool, err error) {
	if err := l.conn.Enqueue(cl, true); err != nil {
		return true, false, err
	}
	return cl.Wait(ctx)
}

func (l *link) Stream(context.Context, codec.Request, func([]byte) (int, bool, error)) (bool, error) {
	return false, errors.New("no streams")
}
func (l *link) Park(context.Context) (bool, error) { l.parked = true; return true, nil }
func (l *link) Parked() bool                       { return l.parked }

func sweepers(t *testing.T, srv *mockserver.Server, n int) (all []*Sweeper[uint16]) {
	for range n {
		var calls conn.CallPool[uint16]
		all = append(all, New(Options[uint16]{Server: connect(t, srv, &calls), Calls: &calls, Now: time.Now, MaxInFlight: 512}))
	}
	return all
}

func TestFirstOfThoseThatClaimATermLeadsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""))
		all := sweepers(t, srv, 3)
		for i := range 20 {
			var terms []term[uint16]
			for _, s := range all {
				term, err := s.lookUp(t.Context())
				require.NoError(t, err)
				require.GreaterOrEqual(t, term.age, time.Minute, "round %d", i)
				terms = append(terms, term)
			}
			for j, s := range all {
				leads, err := s.beginTerm(t.Context(), terms[j])
				require.NoError(t, err)
				require.Equal(t, j == 0, leads)
			}
			term, err := all[0].lookUp(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, term.age, time.Second)
			time.Sleep(time.Minute)
		}
	})
}

func TestIntervalIsWhatTheRecordsNeed(t *testing.T) {
	l := &link{}
	s := New(Options[uint16]{Server: l})
	require.Equal(t, usualInterval, s.interval(), "nothing is known")
	s.Need(20 * time.Second)
	require.Equal(t, usualInterval, s.interval())
	s.last.listing = time.Second
	require.Equal(t, 16*time.Second, s.interval(), "a slow server is swept less often, but often enough")
	s.last.interval = 5 * time.Second
	require.Equal(t, 4*time.Second, s.interval(), "others' records need it")
	s.Need(time.Second)
	s.Need(time.Minute)
	require.Equal(t, 800*time.Millisecond, s.interval())
	s.Need(time.Millisecond)
	require.Equal(t, minInterval, s.interval())
	l.parked = true
	require.Equal(t, parkedInterval, s.interval())
}

func TestPausesLeaveTimeForOthersButEndInTime(t *testing.T) {
	const took = 10 * time.Millisecond
	require.Equal(t, 4*took, pauseAfter(took, time.Minute, 10))
	require.Equal(t, 2*took, pauseAfter(took, 30*took, 10), "a third of the time that is left")
	require.Zero(t, pauseAfter(took, 10*took, 10))
	require.Zero(t, pauseAfter(took, -time.Second, 10))
}

func TestBatchesAreBounded(t *testing.T) {
	var n names
	long := make([]byte, 255)
	for range 1000 {
		n.add([]byte("k"), 0)
	}
	for range 100 {
		n.add(long, 0)
	}
	total := 0
	for chunk := range n.chunks(256, maxChunkBytes) {
		require.LessOrEqual(t, len(chunk), 256)
		size := 0
		for _, name := range chunk {
			frame, err := codec.Update[uint64]{Key: name}.AppendBinary(nil)
			require.NoError(t, err)
			size += len(frame)
		}
		require.LessOrEqual(t, size, 8096)
		total += len(chunk)
	}
	require.Equal(t, 1100, total)
}
