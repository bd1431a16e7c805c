package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
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
			calls, counters := new(CallPool[uint16]), new(Counters)
			c := New(ours, early, Options[uint16]{
				MaxInFlight: 1, MaxQueued: 1, StallTimeout: time.Second, Calls: calls, Counters: counters,
				OnEvent: func(codec.Event[uint16]) { events++ },
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
	var cl *Call[uint16]
	var got []string
	o := Options[uint16]{OnEvent: func(e codec.Event[uint16]) {
		got = append(got, string(e.Payload))
		if string(e.Payload) == "b" && cl.isDone() {
			got = append(got, "too late")
		}
	}}
	onPipe(t, o, func(t *testing.T, l link) {
		cl = l.enqueue(Interruptible, 1, queryFrame)
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
		o := Options[uint16]{MaxInFlight: 5, OnEnd: func(c *Conn[uint16], err error) {
			ended.Add(1)
			require.ErrorIs(t, err, ErrLost)
			require.Equal(t, err, c.Err())
			require.Zero(t, c.Load())
		}}
		onPipe(t, o, func(t *testing.T, l link) {
			first := l.enqueue(Interruptible, 1, 10)
			calls := make([]*Call[uint16], 6)
			for i := range calls {
				calls[i] = l.enqueue(Interruptible, 1, 10)
			}
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			done, sent, _ := l.enqueue(Interruptible, 1, 10).Wait(canceled)
			require.False(t, done)
			require.False(t, sent)
			require.Equal(t, 10, l.received()) // then four calls are in a write, and two wait
			_, err := io.ReadFull(l.server, make([]byte, accepted))
			require.NoError(t, err)
			l.server.Close()
			<-l.Done()
			for i, cl := range append([]*Call[uint16]{first}, calls...) {
				sent, err := l.outcome(cl)
				require.ErrorIs(t, err, ErrLost)
				require.Equal(t, i == 0 || i <= 4 && (i-1)*10 < accepted, sent, "call %d, %d bytes", i, accepted)
				require.Empty(t, cl.done, "a call is done once")
			}
			require.Equal(t, ErrGone, l.Enqueue(l.call(Interruptible, 1, 10), true))
			require.EqualValues(t, 1, ended.Load())
			inFlight, queued := l.Usage()
			require.Zero(t, inFlight)
			require.Zero(t, queued)
		})
	}
}

func TestCallWithSomeOfItsResponsesFails(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 3, 10)
		l.received()
		l.respond(2)
		l.server.Close()
		sent, err := l.outcome(cl)
		require.True(t, sent)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, err, io.EOF)
	})
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 1, 10)
		l.received()
		l.send(1, 7)
		l.server.Close()
		_, err := l.outcome(cl)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
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
		l := newLink(t, lastRead{ours}, theirs, Options[uint16]{})
		cl := l.enqueue(Interruptible, 1, 10)
		l.received()
		l.respond(1)
		l.requireDone(cl)
		theirs.Close()
		<-l.Done()
		require.ErrorIs(t, l.Err(), io.EOF)
	})
}

func TestProtocolErrorEndsTheConnection(t *testing.T) {
	onPipe(t, Options[uint16]{MaxInFlight: 3}, func(t *testing.T, l link) {
		inFlight := l.enqueue(Interruptible, 1, 10)
		alsoInFlight := l.enqueue(Interruptible, 2, 10)
		queued := l.enqueue(Interruptible, 1, 10)
		require.Equal(t, 10, l.received())
		require.Equal(t, 20, l.received())
		l.send(0, 0xff)
		for _, cl := range []*Call[uint16]{inFlight, alsoInFlight} {
			sent, err := l.outcome(cl)
			require.True(t, sent)
			require.ErrorIs(t, err, ErrProtocol)
		}
		sent, err := l.outcome(queued)
		require.False(t, sent)
		require.ErrorIs(t, err, ErrProtocol)
		require.ErrorIs(t, l.Err(), ErrProtocol)
	})
}

func TestStallEndsTheConnection(t *testing.T) {
	onPipe(t, Options[uint16]{MaxInFlight: 2, StallTimeout: 4 * time.Second}, func(t *testing.T, l link) {
		for range 3 {
			l.requireDoneAfter(3500*time.Millisecond, l.enqueue(Interruptible, 1, 10))
			time.Sleep(time.Hour) // no response is due
		}
		cl := l.enqueue(Interruptible, 2, 10)
		queued := l.enqueue(Interruptible, 1, 10)
		l.received()
		for range 10 {
			time.Sleep(3 * time.Second)
			l.send(event(t, "c", "any byte is progress")...)
		}
		start := time.Now()
		sent, err := l.outcome(cl)
		require.True(t, sent)
		require.ErrorIs(t, err, ErrStalled)
		require.ErrorContains(t, err, "no byte for 4s with 2 requests outstanding")
		require.InDelta(t, 4*time.Second, time.Since(start), float64(2*time.Second))
		sent, err = l.outcome(queued)
		require.False(t, sent)
		require.ErrorIs(t, err, ErrStalled)
	})
}

// requireDoneAfter requires that a call is done when the response comes after a while.
func (l link) requireDoneAfter(d time.Duration, cl *Call[uint16]) {
	l.Helper()
	l.received()
	time.Sleep(d)
	l.respond(1)
	l.requireDone(cl)
}

func TestStallIsNoticedThoughNothingIsRead(t *testing.T) {
	onPipe(t, Options[uint16]{StallTimeout: time.Second}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 1, 10) // the write does not return
		sent, err := l.outcome(cl)
		require.False(t, sent)
		require.ErrorIs(t, err, ErrStalled)
	})
}

// What a server can't send keeps its memory for good (H16).
func TestCloseWaitsForTheResponsesThatAreDue(t *testing.T) {
	onPipe(t, Options[uint16]{MaxInFlight: 2}, func(t *testing.T, l link) {
		inFlight := l.enqueue(Interruptible, 2, queryFrame)
		require.Equal(t, 2*queryFrame, l.received())
		queued := l.enqueue(Interruptible, 1, queryFrame)
		var closed time.Time
		go func() {
			l.Close(errTest)
			closed = time.Now()
		}()
		synctest.Wait()
		_, err := l.outcome(queued)
		require.ErrorIs(t, err, errTest, "it fails at once")
		require.ErrorIs(t, l.Enqueue(l.call(Interruptible, 1, queryFrame), true), ErrGone)
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

func TestCloseDoesNotWaitForever(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 2, queryFrame)
		require.Equal(t, 2*queryFrame, l.received())
		start := time.Now()
		l.Close(errTest)
		require.Equal(t, closeGrace, time.Since(start))
		sent, err := l.outcome(cl)
		require.True(t, sent)
		require.ErrorIs(t, err, errTest)
	})
}

// A connection that is retired can be closed, and the reason is that of the latter.
func TestCloseAfterRetire(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 1, queryFrame)
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
