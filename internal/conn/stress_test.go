package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// wrapped hides that a connection is a socket, so that its goroutines do all I/O.
type wrapped struct{ net.Conn }

// Callers increase counters of their own, and some cancel. Each response must be that to the
// caller's own request, and each request be executed once, or at most once if its outcome
// is unknown.
func TestEachCallIsExecutedOnce(t *testing.T) {
	for _, tt := range []struct {
		name    string
		wrap    func(net.Conn) net.Conn
		callers int
	}{
		{"one caller", nil, 1},
		{"two callers", nil, 2},
		{"many callers", nil, 40},
		{"no socket", func(nc net.Conn) net.Conn { return wrapped{nc} }, 20},
	} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, lost %v", tt.name, lost), func(t *testing.T) {
				srv := mockserver.RunT(t, mockserver.WithValueSize(4))
				srv.Split(3)
				nc, err := net.Dial("tcp", srv.Addr())
				require.NoError(t, err)
				if tt.wrap != nil {
					nc = tt.wrap(nc)
				}
				calls := NewCalls(SizeOf(4))
				c := New(nc, nil, Options{
					MaxInFlight: 30, MaxQueued: 1000, StallTimeout: time.Minute,
					Calls: calls, Counters: new(Counters),
				})
				var all sync.WaitGroup
				for i := range tt.callers {
					key := fmt.Sprint("counter", i)
					srv.Set(key, 0, time.Hour)
					all.Go(func() { increaseOften(t, c, calls, srv, key, i) })
				}
				if lost {
					time.Sleep(50 * time.Millisecond)
					srv.Disconnect()
				}
				all.Wait()
				if !lost {
					require.NoError(t, c.Err())
					require.Eventually(t, func() bool { return c.Load().Calls == 0 }, 5*time.Second, time.Millisecond)
				}
				c.Close(ErrGone)
				require.Zero(t, c.Load())
			})
		}
	}
}

// increaseOften makes calls until there have been many or the connection has ended.
func increaseOften(t *testing.T, c *Conn, calls *Calls, srv *mockserver.Server, key string, seed int) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	least, most := uint64(0), uint64(0) // what the counter can be
	for i := range 300 {
		cl := calls.Get()
		cl.SetKey(key)
		cl.SingleRead = rng.IntN(2) > 0
		cl.Update(Update{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: cl.Key})
		Add(cl, codec.Query{Key: cl.Key})
		if c.Enqueue(cl) != nil {
			calls.Put(cl)
			break
		}
		own := ctx
		if i%10 == 9 {
			var stop context.CancelFunc
			own, stop = context.WithTimeout(t.Context(), time.Duration(rng.IntN(300))*time.Microsecond)
			defer stop()
		}
		done, sent, err := cl.Wait(own)
		switch {
		case !done && sent:
			most++ // it may yet be executed
		case !done:
		case err != nil:
			if sent {
				most++
			}
			if !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		default:
			least, most = least+1, most+1
			if got := uint64(cl.Responses[1].Quota); !cl.Responses[0].OK || got < least || got > most {
				t.Errorf("%s: responses %+v, want %d to %d", key, cl.Responses, least, most)
			}
		}
		if done {
			calls.Put(cl)
		}
	}
	require.Eventually(t, func() bool {
		n, ok := srv.Counter(key)
		return ok && n >= least && n <= most
	}, 5*time.Second, time.Millisecond)
}

// The server reads nothing for a while, so that the sockets fill up.
func TestNoCallerIsBlockedByAServerThatReadsNothing(t *testing.T) {
	const callers, size = 300, 7 << 10 // two megabytes, much more than the sockets accept
	ours, theirs := tcpPair(t)
	require.NoError(t, ours.(*net.TCPConn).SetWriteBuffer(64<<10))
	require.NoError(t, theirs.(*net.TCPConn).SetReadBuffer(64<<10))
	l := newLink(t, ours, theirs, Options{StallTimeout: time.Minute})

	ctx, cancel := context.WithCancel(t.Context())
	frame := make([]byte, size)
	var canceled, answered sync.WaitGroup
	var mu sync.Mutex
	sentCount := 0
	call := func(ctx context.Context) (done, sent bool, err error) {
		cl := l.options.Calls.Get()
		cl.AddFrame(frame, codec.KindStatus)
		if err := l.Enqueue(cl); err != nil {
			return true, false, err
		}
		return cl.Wait(ctx)
	}
	for range callers {
		canceled.Go(func() {
			done, sent, err := call(ctx)
			if done || !errors.Is(err, context.Canceled) {
				t.Error(done, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if sent {
				sentCount++
			}
		})
		answered.Go(func() {
			if _, _, err := call(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	l.eventually(func() bool { return l.Load().Calls == 2*callers })
	cancel()
	canceled.Wait() // while the server reads nothing
	require.Less(t, sentCount, callers, "the sockets accepted everything")
	go respond(theirs, size)
	answered.Wait()
	l.eventually(func() bool { return l.Load().Calls == 0 })
}
