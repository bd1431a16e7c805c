package transport_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"iter"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// most is the smallest MaxAnswer.
const most = 16 << 10

// pouring is a fake that answers a request with a beginning and then with the same bytes
// until the client hangs up. It counts what it has written.
func pouring(beginning, then []byte) (f *testkit.Fake[uint16], wrote *atomic.Int64) {
	wrote = new(atomic.Int64)
	f = &testkit.Fake[uint16]{Play: func(op codec.Op, nc net.Conn) bool {
		if op == codec.OpChannel {
			io.ReadFull(nc, make([]byte, 2)) // the name, of one byte
		}
		for _, b := range [][]byte{beginning, then} {
			n, err := nc.Write(b)
			wrote.Add(int64(n))
			if err != nil {
				return false
			}
		}
		for {
			n, err := nc.Write(then)
			wrote.Add(int64(n))
			if err != nil {
				return false
			}
		}
	}}
	return f, wrote
}

// numbers are numbers of 8 bytes.
func numbers(ns ...uint64) []byte {
	var b []byte
	for _, n := range ns {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// unbounded are the calls whose answers the protocol does not bound.
func unbounded(t *testing.T, c *throttr.Client[uint16]) map[codec.Op]func() error {
	return map[codec.Op]func() error{
		codec.OpList:        func() error { return lastOf(t, c.List(t.Context())) },
		codec.OpStats:       func() error { return lastOf(t, c.KeyStats(t.Context())) },
		codec.OpConnections: func() error { return lastOf(t, c.Connections(t.Context())) },
		codec.OpChannels:    func() error { return lastOf(t, c.Channels(t.Context())) },
		codec.OpChannel: func() error {
			_, _, err := c.Channel(t.Context(), "c")
			return err
		},
	}
}

// lastOf returns the error that an iterator ends with.
func lastOf[A any](t *testing.T, seq iter.Seq2[A, error]) error {
	_, err := testkit.Collect(t, seq)
	return err
}

// limited returns a ctx that ends after d.
func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestAServerThatNeverEndsItsAnswerIsCutOff has a server answer with more and more. The
// client hangs up, and has not read much more than it may hold.
func TestAServerThatNeverEndsItsAnswerIsCutOff(t *testing.T) {
	for op := range unbounded(t, nil) {
		t.Run(op.String(), func(t *testing.T) {
			beginning := slices.Concat([]byte{1}, numbers(1, 1, 1<<64-1))
			if op == codec.OpChannel {
				beginning = slices.Concat([]byte{1}, numbers(1<<64-1))
			}
			f, wrote := pouring(beginning, make([]byte, 4<<10))
			client := f.Client(t, throttr.Config{MaxAnswer: most})
			require.ErrorIs(t, unbounded(t, client)[op](), throttr.ErrProtocol)
			client.Close()
			f.Wait()
			require.LessOrEqual(t, wrote.Load(), int64(most+4<<10))
		})
	}
	t.Run("names", func(t *testing.T) {
		entries := uint64(most / 33) // they fit, but not with names of 255 bytes
		f, _ := pouring(slices.Concat([]byte{1}, numbers(1, 1, entries)), bytes.Repeat([]byte{0xff}, 4<<10))
		client := f.Client(t, throttr.Config{MaxAnswer: most})
		err := unbounded(t, client)[codec.OpStats]()
		require.ErrorIs(t, err, throttr.ErrProtocol)
		require.ErrorContains(t, err, "too long")
	})
}

// TestAnAnswerMayBeAsLongAsAllowed looks at the longest answers of one fragment, and of
// CHANNEL, that are still taken, and at those that are an entry longer.
func TestAnAnswerMayBeAsLongAsAllowed(t *testing.T) {
	list := func(n int) codec.StatsResponse {
		return codec.StatsResponse{Fragments: [][]codec.StatsEntry{make([]codec.StatsEntry, n), make([]codec.StatsEntry, n)}}
	}
	fit := most / 33
	client := testkit.Responding[uint16](testkit.Encode(t, list(fit))).Client(t, throttr.Config{MaxAnswer: most})
	got, err := testkit.Collect(t, client.KeyStats(t.Context()))
	require.NoError(t, err)
	require.Len(t, got, 2*fit, "the whole answer is longer than that, its fragments are not")
	client = testkit.Responding[uint16](testkit.Encode(t, list(fit+1))).Client(t, throttr.Config{MaxAnswer: most})
	_, err = testkit.Collect(t, client.KeyStats(t.Context()))
	require.ErrorIs(t, err, throttr.ErrProtocol)

	channel := func(n int) *testkit.Fake[uint16] {
		answer := testkit.Encode(t, codec.ChannelResponse{Found: true, Subscribers: make([]codec.Subscriber, n)})
		return &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
			io.ReadFull(nc, make([]byte, 2))
			_, err := nc.Write(answer)
			return err == nil
		}}
	}
	fit = (most - 9) / 40
	subscribers, ok, err := channel(fit).Client(t, throttr.Config{MaxAnswer: most}).Channel(t.Context(), "c")
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, subscribers, fit)
	_, _, err = channel(fit+1).Client(t, throttr.Config{MaxAnswer: most}).Channel(t.Context(), "c")
	require.ErrorIs(t, err, throttr.ErrProtocol)
	require.ErrorContains(t, err, "longer than 16384 bytes")
}

// TestAListWithoutEndTakesNoMemory has an iteration over 16 MiB of fragments, and looks at
// the heap while it goes on.
func TestAListWithoutEndTakesNoMemory(t *testing.T) {
	const entries = 100
	fragment := func(i uint64) []byte {
		return slices.Concat(numbers(i, entries), make([]byte, entries*33))
	}
	f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
		_, err := nc.Write(slices.Concat([]byte{1}, numbers(1<<64-1)))
		for i := uint64(1); err == nil; i++ {
			_, err = nc.Write(fragment(i))
		}
		return false
	}}
	client := f.Client(t, throttr.Config{})
	var before, after runtime.MemStats
	n := 0
	for _, err := range client.KeyStats(t.Context()) {
		require.NoError(t, err)
		if n++; n == 1000 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		if n*33 > 16<<20 {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20))
}

// TestWhatIsHeldOfAFragmentIsBounded has a server send the longest fragment of the smallest
// entries, save for its last byte, and looks at what the client holds then.
func TestWhatIsHeldOfAFragmentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 4 << 20 // the default
		entries := make([]codec.ListEntry[uint8], most/12)
		answer := testkit.Encode(t, codec.ListResponse[uint8]{Fragments: [][]codec.ListEntry[uint8]{entries}})
		entries = nil
		f := &testkit.Fake[uint8]{Play: func(_ codec.Op, nc net.Conn) bool {
			_, err := nc.Write(answer[:len(answer)-1])
			return err == nil
		}}
		client := f.Client(t, throttr.Config{})
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		done := make(chan error)
		go func() {
			_, err := testkit.Collect(t, client.List(t.Context()))
			done <- err
		}()
		synctest.Wait()
		held := heap() - before
		require.ErrorIs(t, <-done, throttr.ErrStalled)
		require.Greater(t, held, int64(most))
		require.Less(t, held, int64(8*most))
		runtime.KeepAlive(answer)
	})
}

// TestEventsWithoutEndHoldUpNobodyForEver has a server send EVENTs in place of an answer:
// the caller leaves when its ctx ends, and the connection with it.
func TestEventsWithoutEndHoldUpNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		event := testkit.Encode(t, codec.Event[uint16]{Channel: []byte("*"), Payload: make([]byte, 1000)})
		f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
			for {
				if _, err := nc.Write(event); err != nil {
					return false
				}
				time.Sleep(time.Millisecond)
			}
		}}
		client := f.Client(t, throttr.Config{})
		start := time.Now()
		_, err := testkit.Collect(t, client.List(limited(t, 30*time.Second)))
		require.True(t, throttr.Timeout(err), err)
		_, _, err = client.Get(limited(t, 30*time.Second), "k")
		require.True(t, throttr.Timeout(err), err)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// TestNoMoreWaitForASessionThanAllowed has more listings than places and waiters.
func TestNoMoreWaitForASessionThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := testkit.Responding[uint16](nil).Client(t, throttr.Config{MaxConns: 2, MaxWaiting: 3, StallTimeout: time.Hour})
		results := make(chan error)
		for range 10 {
			go func() {
				_, err := testkit.Collect(t, client.List(limited(t, time.Minute)))
				results <- err
			}()
			synctest.Wait()
		}
		for range 5 {
			err := <-results
			require.ErrorIs(t, err, throttr.ErrOverloaded)
			require.True(t, throttr.SafeToRetry(err))
		}
		require.Equal(t, 3, testkit.ServerStats(client).Acquiring)
		for range 5 {
			require.True(t, throttr.Timeout(<-results))
		}
		require.Zero(t, testkit.ServerStats(client).Acquiring)
		require.True(t, throttr.Timeout(lastOf(t, client.Connections(limited(t, time.Second)))), "there is room again")
	})
}
