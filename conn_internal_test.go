package throttr

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// wire is a connection whose other end the test holds.
type wire struct {
	*testing.T
	*conn[uint16]
	server net.Conn
}

// onWire runs a test of a connection in a bubble.
func onWire(t *testing.T, cfg Config, f func(w wire)) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := cfg.withDefaults()
		require.NoError(t, err)
		ours, theirs := net.Pipe()
		p := &pool[uint16]{cfg: &cfg, calls: &sync.Pool{New: func() any { return newCall[uint16]() }}}
		w := wire{t, newConn(ours, nil, p), theirs}
		t.Cleanup(func() { w.close(ErrClosed) })
		f(w)
	})
}

// queue pushes a call of n QUERYs of so many bytes each, and waits until the connection
// has done what it can.
func (w wire) queue(u unity, n, size int) *call[uint16] {
	w.Helper()
	cl := newCall[uint16]()
	cl.reset()
	cl.unity = u
	for range n {
		require.NoError(w, cl.add(codec.Query{Key: bytes.Repeat([]byte{'k'}, size-2)}))
	}
	_, err := w.push(cl, true)
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

func isDone(cl *call[uint16]) bool { return cl.state.Load() == callDone }

func TestCallsThatWaitLeaveInOneWrite(t *testing.T) {
	onWire(t, Config{}, func(w wire) {
		first := w.queue(loose, 1, 10) // its write goes on
		for range 5 {
			w.queue(loose, 2, 20)
		}
		require.Equal(t, 10, w.written())
		require.Equal(t, 200, w.written())
		require.True(t, w.silent())
		w.answers(1)
		require.True(t, isDone(first))
		w.answers(10)
		require.Zero(t, w.load.get())
	})
}

func TestACallThatMustBeAloneWaitsForEverythingInFlight(t *testing.T) {
	onWire(t, Config{}, func(w wire) {
		w.queue(loose, 2, 10)
		w.queue(alone, 3, 30)
		behind := w.queue(loose, 1, 40)
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
	onWire(t, Config{}, func(w wire) {
		w.queue(loose, 1, 10)
		for range 10 {
			w.queue(alone, 2, 200) // 400 bytes each
		}
		require.Equal(t, 10, w.written())
		require.True(t, w.silent())
		w.answers(1)
		for left := 10; left > 0; left -= min(left, 3) {
			require.Equal(t, 400*min(left, 3), w.written())
			require.True(t, w.silent())
			w.answers(2 * min(left, 3))
		}
		require.Zero(t, w.load.get())
	})
}

func TestACallThatMustBeAloneDoesNotFollowOthersInAWrite(t *testing.T) {
	onWire(t, Config{}, func(w wire) {
		w.queue(alone, 1, 10)
		w.queue(alone, 1, 20)
		w.queue(loose, 1, 30)
		w.queue(alone, 1, 40)
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
	onWire(t, Config{}, func(w wire) {
		w.queue(loose, 1, 10)
		w.queue(alone, 10, 200)
		w.queue(alone, 1, 10)
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
	onWire(t, Config{}, func(w wire) {
		w.queue(loose, 40, 200)                      // 8000 bytes
		fits := w.queue(whole, 2, 48)                // 8096
		cut := w.queue(whole, 1, 3)                  // one too many
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

		w.queue(loose, 40, 200)
		w.queue(whole, 2, 47) // 8094
		w.queue(whole, 1, 3)  // 8097
		require.Equal(t, 8000, w.written())
		require.Equal(t, 94, w.written())
		require.True(t, w.silent(), "one byte too many")
		w.answers(42)
		require.Equal(t, 3, w.written())
		w.answers(1)

		w.queue(whole, 50, 200)
		require.Equal(t, 10_000, w.written(), "one that can't fit goes when nothing is in flight")
		w.answers(50)
	})
}

func TestACallOfMoreThanMayBeInFlightGoesByItself(t *testing.T) {
	onWire(t, Config{MaxInFlight: 3}, func(w wire) {
		w.queue(loose, 1, 10)
		large := w.queue(alone, 7, 10)
		w.queue(loose, 1, 20)
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
	onWire(t, Config{MaxInFlight: 2}, func(w wire) {
		inFlight := w.queue(loose, 2, 10)
		queued := w.queue(loose, 1, 20)
		last := w.queue(loose, 1, 30)
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
		require.Zero(t, w.load.get(), "the connection has put the abandoned calls away")
	})
}

func TestARetiringConnectionEndsThoughTheCallsThatWaitWereAbandoned(t *testing.T) {
	onWire(t, Config{MaxInFlight: 1}, func(w wire) {
		w.queue(loose, 1, 10)
		queued := w.queue(loose, 1, 20)
		require.Equal(t, 10, w.written())
		_, ok := queued.abandon()
		require.True(t, ok)
		w.retire()
		_, err := w.push(newCall[uint16](), true)
		require.Equal(t, errConnGone, err)
		synctest.Wait()
		require.NoError(t, w.failure(), "a call is in flight")
		w.answers(1)
		<-w.done
		require.Equal(t, errConnGone, w.failure())
	})
}

func TestARetiringConnectionEndsAtOnceIfItHasNothingToDo(t *testing.T) {
	onWire(t, Config{}, func(w wire) {
		w.retire()
		<-w.done
	})
}

func TestARetiringConnectionFinishesWhatItHas(t *testing.T) {
	onWire(t, Config{MaxInFlight: 1}, func(w wire) {
		first, second := w.queue(loose, 1, 10), w.queue(loose, 1, 20)
		w.retire()
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
	onWire(t, Config{MaxInFlight: 1, MaxWaiting: 2}, func(w wire) {
		w.queue(loose, 1, 10)
		w.queue(loose, 2, 10)
		one := newCall[uint16]()
		require.NoError(t, one.add(codec.Query{}))
		_, err := w.push(one, true)
		require.Equal(t, ErrOverloaded, err)
		require.Equal(t, 10, w.written())
		w.answers(1)
		require.Equal(t, 20, w.written())
		_, err = w.push(one, true)
		require.NoError(t, err)
	})
	onWire(t, Config{MaxInFlight: 1, MaxWaiting: 2}, func(w wire) {
		w.queue(loose, 1, 10)
		w.queue(loose, 5, 10) // a batch of more than may wait goes where none waits
	})
}

func TestAnswersThatComeInPiecesFindTheirCalls(t *testing.T) {
	onWire(t, Config{}, func(w wire) {
		cl := w.queue(loose, 2, 10)
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
		require.Equal(t, []answer[uint16]{
			{ok: true, quota: 7, ttl: codec.TTL[uint16]{Amount: 9, Unit: codec.Seconds}},
			{ok: true, quota: 8, ttl: codec.TTL[uint16]{Amount: 1, Unit: codec.Milliseconds}},
		}, cl.answers)
		require.EqualValues(t, 1, w.counts.events.Load())
	})
}
