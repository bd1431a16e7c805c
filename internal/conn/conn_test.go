package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

func TestConnectionBeginsWithTheBytesThatCameEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{1, 3000} {
			var early []byte
			for range n {
				early = append(early, event(t, "c", "0123456789")...)
			}
			early = append(early, event(t, "c", "x")[:3]...)
			ours, theirs := net.Pipe()
			events := 0
			calls, counters := NewCalls(SizeOf(2)), new(Counters)
			c := New(ours, early, Options{
				MaxInFlight: 1, MaxQueued: 1, StallTimeout: time.Second, Calls: calls, Counters: counters,
				OnEvent: func(Event) { events++ },
			})
			synctest.Wait()
			require.Equal(t, n, events)
			_, err := theirs.Write(event(t, "c", "x")[3:])
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, n+1, events)
			require.EqualValues(t, n+1, counters.Events.Load())
			c.Close(ErrGone)
		}
	})
}

func TestEventsAreReceivedBeforeTheResponsesBehindThem(t *testing.T) {
	var cl *Call
	var got []string
	o := Options{OnEvent: func(e Event) {
		got = append(got, string(e.Payload))
		if string(e.Payload) == "b" && cl.isDone() {
			got = append(got, "too late")
		}
	}}
	onPipe(t, o, func(t *testing.T, l link) {
		cl = l.enqueue(1, queryFrame)
		l.received()
		l.send(append(append(event(t, "c", "a"), event(t, "c", "b")...), 0)...)
		_, err := l.outcome(cl)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, got)
	})
}

// The server reads a part of a write and hangs up. Each call fails once, and knows whether
// a byte of it has left.
func TestLostConnectionFailsEachCallOnce(t *testing.T) {
	for _, accepted := range []int{0, 1, 9, 10, 11, 40} {
		var ended atomic.Int64
		o := Options{MaxInFlight: 5, OnEnd: func(c *Conn, err error) {
			ended.Add(1)
			require.ErrorIs(t, err, ErrLost)
			require.Equal(t, err, c.Err())
			require.Zero(t, c.Load())
		}}
		onPipe(t, o, func(t *testing.T, l link) {
			first := l.enqueue(1, 10)
			calls := make([]*Call, 6)
			for i := range calls {
				calls[i] = l.enqueue(1, 10)
			}
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			done, sent, _ := l.enqueue(1, 10).Wait(canceled)
			require.False(t, done)
			require.False(t, sent)
			require.Equal(t, 10, l.received()) // then four calls are in a write, and two wait
			_, err := io.ReadFull(l.server, make([]byte, accepted))
			require.NoError(t, err)
			l.server.Close()
			<-l.Done()
			for i, cl := range append([]*Call{first}, calls...) {
				sent, err := l.outcome(cl)
				require.ErrorIs(t, err, ErrLost)
				require.Equal(t, i == 0 || i <= 4 && (i-1)*10 < accepted, sent, "call %d, %d bytes", i, accepted)
				require.Empty(t, cl.done, "a call is done once")
			}
			require.Equal(t, ErrGone, l.Enqueue(l.call(1, 10)))
			require.EqualValues(t, 1, ended.Load())
			inFlight, queued := l.Usage()
			require.Zero(t, inFlight)
			require.Zero(t, queued)
		})
	}
}

// lastRead is a connection whose read returns its end together with what came before.
type lastRead struct{ net.Conn }

func (c lastRead) Read(p []byte) (int, error) {
	n, _ := c.Conn.Read(p)
	return n, io.EOF
}

func TestCallIsDoneThoughItsReadBringsTheEndToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		l := newLink(t, lastRead{ours}, theirs, Options{})
		cl := l.enqueue(1, 10)
		l.received()
		l.respond(1)
		l.requireDone(cl)
		theirs.Close()
		<-l.Done()
		require.ErrorIs(t, l.Err(), io.EOF)
	})
}

// What a server can't send keeps its memory for good (H16).
func TestCloseWaitsForTheResponsesThatAreDue(t *testing.T) {
	onPipe(t, Options{MaxInFlight: 2}, func(t *testing.T, l link) {
		inFlight := l.enqueue(2, queryFrame)
		require.Equal(t, 2*queryFrame, l.received())
		queued := l.enqueue(1, queryFrame)
		var closed time.Time
		go func() {
			l.Close(errTest)
			closed = time.Now()
		}()
		synctest.Wait()
		_, err := l.outcome(queued)
		require.ErrorIs(t, err, errTest, "it fails at once")
		require.ErrorIs(t, l.Enqueue(l.call(1, queryFrame)), ErrGone)
		require.False(t, inFlight.isDone())
		time.Sleep(100 * time.Millisecond)
		answered := time.Now()
		l.respond(2)
		l.requireDone(inFlight)
		require.Equal(t, answered, closed)
		require.ErrorIs(t, l.Err(), errTest)
		_, err = l.server.Read(make([]byte, 1))
		require.Error(t, err, "the network connection is closed")
	})
}

// A connection that is retired can be closed, and the reason is that of the latter.
func TestCloseAfterRetire(t *testing.T) {
	onPipe(t, Options{}, func(t *testing.T, l link) {
		cl := l.enqueue(1, queryFrame)
		require.Equal(t, queryFrame, l.received())
		l.Retire()
		reason := errors.New("closed")
		go l.Close(reason)
		synctest.Wait()
		l.Retire()
		l.respond(1)
		l.requireDone(cl)
		<-l.Done()
		require.Equal(t, reason, l.Err())
	})
}

// The connection ends with a call of three requests in flight, and another one queued.
func TestWhatEndsAConnectionFailsItsCalls(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l link)
		want []error
		text string
		took time.Duration
	}{
		"hung up":                       {func(l link) { l.respond(2); l.server.Close() }, []error{ErrLost, io.EOF}, "", 0},
		"hung up after Retire":          {func(l link) { l.Retire(); l.server.Close() }, []error{ErrLost, io.EOF}, "", 0},
		"hung up in a response":         {func(l link) { l.send(1, 7); l.server.Close() }, []error{ErrLost, io.ErrUnexpectedEOF}, "", 0},
		"no response":                   {func(l link) { l.send(0, 0xff) }, []error{ErrProtocol}, "", 0},
		"no response, behind responses": {func(l link) { l.send(0, 0, 0, 0xff) }, []error{ErrProtocol}, "", 0},
		"silent":                        {func(l link) {}, []error{ErrStalled}, "no byte for 4s with 3 requests outstanding", 4 * time.Second},
		"silent, after progress": {func(l link) {
			for range 10 {
				time.Sleep(3 * time.Second)
				l.send(event(l.T, "c", "any byte is progress")...)
			}
		}, []error{ErrStalled}, "", 34 * time.Second},
		"closed": {func(l link) { l.Close(errTest) }, []error{errTest}, "", CloseGrace},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{MaxInFlight: 3, StallTimeout: 4 * time.Second}
			onPipe(t, o, func(t *testing.T, l link) {
				for range 3 {
					slow := l.enqueue(1, 10)
					l.received()
					time.Sleep(3500 * time.Millisecond)
					l.respond(1)
					l.requireDone(slow)
					time.Sleep(time.Hour) // no response is due
				}
				inFlight, queued := l.enqueue(3, 10), l.enqueue(3, 10)
				require.Equal(t, 30, l.received())
				start := time.Now()
				c.end(l)
				for _, cl := range []*Call{inFlight, queued} {
					sent, err := l.outcome(cl)
					require.Equal(t, cl == inFlight, sent)
					for _, want := range c.want {
						require.ErrorIs(t, err, want)
						require.ErrorIs(t, l.Err(), want)
					}
					require.ErrorContains(t, err, c.text)
				}
				require.InDelta(t, c.took, time.Since(start), float64(c.took/5+1))
			})
		})
	}
	onPipe(t, Options{StallTimeout: time.Second}, func(t *testing.T, l link) {
		sent, err := l.outcome(l.enqueue(1, 10)) // the write does not return
		require.False(t, sent)
		require.ErrorIs(t, err, ErrStalled)
	})
}

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
