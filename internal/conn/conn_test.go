package conn

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// wire is a connection whose other end the test holds.
type wire struct {
	*testing.T
	*Conn[uint16]
	server net.Conn
}

// onWire runs a test of a connection in a bubble.
func onWire(t *testing.T, o Options[uint16], f func(w wire)) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		if o.MaxInFlight == 0 {
			o.MaxInFlight = 512
		}
		if o.MaxQueued == 0 {
			o.MaxQueued = 10_000
		}
		o.StallTimeout, o.Calls, o.Counters = 10*time.Second, new(CallPool[uint16]), new(Counters)
		w := wire{t, New(ours, nil, o), theirs}
		t.Cleanup(func() { w.Close(ErrGone) })
		f(w)
	})
}

// queue pushes a call of n QUERYs of so many bytes each, and waits until the connection
// has done what it can.
func (w wire) queue(a Atomicity, n, size int) *Call[uint16] {
	w.Helper()
	cl := new(CallPool[uint16]).Get()
	cl.Atomicity = a
	for range n {
		require.NoError(w, Add(cl, codec.Query{Key: bytes.Repeat([]byte{'k'}, size-2)}))
	}
	err := w.Enqueue(cl, true)
	require.NoError(w, err)
	synctest.Wait()
	return cl
}

// written takes one write off the wire and returns its size.
func (w wire) written() int {
	w.Helper()
	n, err := w.server.Read(make([]byte, 1<<20))
	require.NoError(w, err)
	synctest.Wait()
	return n
}

// silent reports whether nothing is being written.
func (w wire) silent() bool {
	w.server.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer w.server.SetReadDeadline(time.Time{})
	_, err := w.server.Read(make([]byte, 1))
	return err != nil
}

// answers answers n QUERYs: not found.
func (w wire) answers(n int) {
	w.Helper()
	_, err := w.server.Write(make([]byte, n))
	require.NoError(w, err)
	synctest.Wait()
}

func isDone(cl *Call[uint16]) bool { return cl.state.Load() == callDone }

func TestCallsThatWaitLeaveInOneWrite(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		first := w.queue(Interruptible, 1, 10) // its write goes on
		for range 5 {
			w.queue(Interruptible, 2, 20)
		}
		require.Equal(t, 10, w.written())
		require.Equal(t, 200, w.written())
		require.True(t, w.silent())
		w.answers(1)
		require.True(t, isDone(first))
		w.answers(10)
		require.Zero(t, w.Load())
	})
}

func TestACallThatMustBeAloneWaitsForEverythingInFlight(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.queue(Interruptible, 2, 10)
		w.queue(Exclusive, 3, 30)
		behind := w.queue(Interruptible, 1, 40)
		require.Equal(t, 20, w.written())
		require.True(t, w.silent())
		w.answers(1)
		require.True(t, w.silent(), "one request is still in flight")
		w.answers(1)
		require.Equal(t, 3*30+40, w.written(), "what comes behind goes along")
		w.answers(4)
		require.True(t, isDone(behind))
	})
}

func TestCallsThatMustBeAloneShareAWriteThatFitsOnePacket(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		for range 10 {
			w.queue(Exclusive, 2, 200) // 400 bytes each
		}
		require.Equal(t, 10, w.written())
		require.True(t, w.silent())
		w.answers(1)
		for left := 10; left > 0; left -= min(left, 3) {
			require.Equal(t, 400*min(left, 3), w.written())
			require.True(t, w.silent())
			w.answers(2 * min(left, 3))
		}
		require.Zero(t, w.Load())
	})
}

func TestACallThatMustBeAloneDoesNotFollowOthersInAWrite(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.queue(Exclusive, 1, 10)
		w.queue(Exclusive, 1, 20)
		w.queue(Interruptible, 1, 30)
		w.queue(Exclusive, 1, 40)
		require.Equal(t, 10, w.written())
		require.True(t, w.silent())
		w.answers(1)
		require.Equal(t, 20+30, w.written())
		require.True(t, w.silent())
		w.answers(2)
		require.Equal(t, 40, w.written())
		w.answers(1)
	})
}

func TestACallThatMustBeAloneMayBeLargerThanAPacket(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		w.queue(Exclusive, 10, 200)
		w.queue(Exclusive, 1, 10)
		require.Equal(t, 10, w.written())
		w.answers(1)
		require.Equal(t, 2000, w.written())
		require.True(t, w.silent())
		w.answers(10)
		require.Equal(t, 10, w.written())
		w.answers(1)
	})
}

func TestAWholeCallIsNeverCutByTheServersReads(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.queue(Interruptible, 40, 200)              // 8000 bytes
		fits := w.queue(SingleRead, 2, 48)           // 8096
		cut := w.queue(SingleRead, 1, 3)             // one too many
		require.Equal(t, 8000, w.written())          // the write that was under way
		require.Equal(t, 96, w.written(), "it fits") // exactly
		require.True(t, w.silent(), "it would be cut")
		w.answers(39)
		require.True(t, w.silent(), "calls count until they are answered in full")
		w.answers(1)
		require.Equal(t, 3, w.written())
		w.answers(3)
		require.True(t, isDone(fits))
		require.True(t, isDone(cut))

		w.queue(Interruptible, 40, 200)
		w.queue(SingleRead, 2, 47) // 8094
		w.queue(SingleRead, 1, 3)  // 8097
		require.Equal(t, 8000, w.written())
		require.Equal(t, 94, w.written())
		require.True(t, w.silent(), "one byte too many")
		w.answers(42)
		require.Equal(t, 3, w.written())
		w.answers(1)

		w.queue(SingleRead, 50, 200)
		require.Equal(t, 10_000, w.written(), "one that can't fit goes when nothing is in flight")
		w.answers(50)
	})
}

func TestACallOfMoreThanMayBeInFlightGoesByItself(t *testing.T) {
	onWire(t, Options[uint16]{MaxInFlight: 3}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		large := w.queue(Exclusive, 7, 10)
		w.queue(Interruptible, 1, 20)
		require.Equal(t, 10, w.written())
		require.True(t, w.silent())
		w.answers(1)
		require.Equal(t, 70, w.written())
		require.True(t, w.silent())
		w.answers(6)
		require.Equal(t, 20, w.written(), "places are freed by answers")
		w.answers(2)
		require.True(t, isDone(large))
	})
}

func TestPlacesAreFreedByAnswersAndNotByCallersWhoLeave(t *testing.T) {
	onWire(t, Options[uint16]{MaxInFlight: 2}, func(w wire) {
		inFlight := w.queue(Interruptible, 2, 10)
		queued := w.queue(Interruptible, 1, 20)
		last := w.queue(Interruptible, 1, 30)
		require.Equal(t, 20, w.written())
		sent, ok := inFlight.abandon()
		require.True(t, ok)
		require.True(t, sent)
		sent, ok = queued.abandon()
		require.True(t, ok)
		require.False(t, sent)
		require.True(t, w.silent())
		w.answers(1)
		require.Equal(t, 30, w.written(), "the abandoned call in between is not sent")
		w.answers(2)
		require.True(t, isDone(last))
		require.Zero(t, w.Load(), "the connection has put the abandoned calls away")
	})
}

func TestARetiringConnectionEndsThoughTheCallsThatWaitWereAbandoned(t *testing.T) {
	onWire(t, Options[uint16]{MaxInFlight: 1}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		queued := w.queue(Interruptible, 1, 20)
		require.Equal(t, 10, w.written())
		_, ok := queued.abandon()
		require.True(t, ok)
		w.Retire()
		err := w.Enqueue(new(CallPool[uint16]).Get(), true)
		require.Equal(t, ErrGone, err)
		synctest.Wait()
		require.NoError(t, w.Err(), "a call is in flight")
		w.answers(1)
		<-w.done
		require.Equal(t, ErrGone, w.Err())
	})
}

func TestARetiringConnectionEndsAtOnceIfItHasNothingToDo(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		w.Retire()
		<-w.done
	})
}

func TestARetiringConnectionFinishesWhatItHas(t *testing.T) {
	onWire(t, Options[uint16]{MaxInFlight: 1}, func(w wire) {
		first, second := w.queue(Interruptible, 1, 10), w.queue(Interruptible, 1, 20)
		w.Retire()
		require.Equal(t, 10, w.written())
		w.answers(1)
		require.Equal(t, 20, w.written())
		w.answers(1)
		<-w.done
		require.NoError(t, first.err)
		require.NoError(t, second.err)
		require.True(t, isDone(second))
	})
}

func TestMoreThanMayWaitIsRefused(t *testing.T) {
	onWire(t, Options[uint16]{MaxInFlight: 1, MaxQueued: 2}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		w.queue(Interruptible, 2, 10)
		one := new(CallPool[uint16]).Get()
		require.NoError(t, Add(one, codec.Query{}))
		err := w.Enqueue(one, true)
		require.Equal(t, ErrQueueFull, err)
		require.Equal(t, 10, w.written())
		w.answers(1)
		require.Equal(t, 20, w.written())
		err = w.Enqueue(one, true)
		require.NoError(t, err)
	})
	onWire(t, Options[uint16]{MaxInFlight: 1, MaxQueued: 2}, func(w wire) {
		w.queue(Interruptible, 1, 10)
		w.queue(Interruptible, 5, 10) // a batch of more than may wait goes where none waits
	})
}

func TestAnswersThatComeInPiecesFindTheirCalls(t *testing.T) {
	onWire(t, Options[uint16]{}, func(w wire) {
		cl := w.queue(Interruptible, 2, 10)
		require.Equal(t, 20, w.written())
		for _, b := range []byte{1, 7, 0, 4, 9, 0, 0x19, 1, 2, 0, 'c', 'a', 'b', 1, 8, 0, 3, 1} {
			_, err := w.server.Write([]byte{b})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.False(t, isDone(cl))
		_, err := w.server.Write([]byte{0})
		require.NoError(t, err)
		<-cl.done
		require.Equal(t, []Reply[uint16]{
			{OK: true, Quota: 7, TTL: codec.TTL[uint16]{Amount: 9, Unit: codec.Seconds}},
			{OK: true, Quota: 8, TTL: codec.TTL[uint16]{Amount: 1, Unit: codec.Milliseconds}},
		}, cl.Replies)
		require.EqualValues(t, 1, w.o.Counters.Events.Load())
	})
}
