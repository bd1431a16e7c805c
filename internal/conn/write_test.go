package conn

import (
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/window"
)

// step is a step of a test: what a caller or the server does, or what must be seen.
type step func(l link)

// put queues a call of n QUERYs of so many bytes each.
func put(n, size int) step { return func(l link) { l.enqueue(n, size) } }

// putSingle is put for a call that must fit a single read.
func putSingle(n, size int) step {
	return func(l link) {
		l.Helper()
		cl := l.call(n, size)
		cl.SingleRead = true
		require.NoError(l, l.Enqueue(cl))
		synctest.Wait()
	}
}

// abandon cancels a queued call.
func (l link) abandon(cl *Call) {
	l.Helper()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	done, sent, _ := cl.Wait(canceled)
	require.False(l, done)
	require.False(l, sent)
	synctest.Wait()
}

// putCanceled is put for a call whose caller gives up at once.
func putCanceled(n, size int) step { return func(l link) { l.abandon(l.enqueue(n, size)) } }

// putStale is put for a call that is stale when its turn comes, though not yet now.
func putStale(n, size int) step {
	return func(l link) {
		l.Helper()
		cl := l.call(n, size)
		turns := 0
		cl.Stale = func() bool { turns++; return true }
		require.NoError(l, l.Enqueue(cl))
		require.Zero(l, turns)
		l.Cleanup(func() {
			sent, err := l.outcome(cl)
			require.Equal(l, ErrStale, err)
			require.False(l, sent)
		})
	}
}

// giveUp cancels the oldest call in the queue.
func giveUp(l link) {
	l.Helper()
	l.mu.Lock()
	cl := l.queued.first
	l.mu.Unlock()
	l.abandon(cl)
}

// rejected requires that a call of one QUERY is rejected, because the queue is full.
func rejected(l link) {
	l.Helper()
	require.Equal(l, window.ErrOverloaded, l.Enqueue(l.call(1, 10)))
}

// wrote requires that the next write of the connection has so many bytes.
func wrote(size int) step {
	return func(l link) {
		l.Helper()
		require.Equal(l, size, l.received())
	}
}

// quiet requires that the connection writes nothing now.
func quiet(l link) {
	l.Helper()
	l.server.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer l.server.SetReadDeadline(time.Time{})
	_, err := l.server.Read(make([]byte, 1))
	require.Error(l, err)
}

// answer has the server respond to n requests.
func answer(n int) step { return func(l link) { l.respond(n) } }

// times repeats steps.
func times(n int, steps ...step) (all []step) {
	for range n {
		all = append(all, steps...)
	}
	return all
}

// Which calls share a write, when each is written, and which are not. The pipe has not accepted the first write when the
// other calls are queued.
func TestWrites(t *testing.T) {
	const maxQueued = 500
	for name, c := range map[string]struct {
		maxInFlight int
		steps       []step
	}{
		"queued calls share a write": {0, slices.Concat(
			[]step{put(1, 10)}, times(5, put(2, 20)),
			[]step{wrote(10), wrote(200), quiet, answer(1), answer(10)},
		)},
		"a large queue is written in several writes": {0, slices.Concat(
			[]step{put(1, 10)}, times(400, put(1, 250)),
			[]step{wrote(10), wrote((writeSize/250 + 1) * 250), wrote((400 - writeSize/250 - 1) * 250), answer(401)},
		)},
		"a call of a single read fits what is in flight": {0, []step{ // 8000 + 96 + 3 bytes
			put(40, 200), putSingle(2, 48), putSingle(1, 3),
			wrote(8000), wrote(96), quiet, answer(39), quiet, answer(1), wrote(3), answer(3),
		}},
		"a call of a single read is a byte too long": {0, []step{ // 8000 + 94 + 3 bytes
			put(40, 200), putSingle(2, 47), putSingle(1, 3),
			wrote(8000), wrote(94), quiet, answer(42), wrote(3), answer(1),
		}},
		"a call of a single read that never fits goes by itself": {0, []step{
			putSingle(50, 200), wrote(10_000), answer(50),
		}},
		"no more than MaxInFlight are in flight": {3, slices.Concat(
			times(5, put(1, 10)), []step{wrote(10), wrote(20), quiet, answer(1), wrote(10), quiet, answer(1), wrote(10), answer(3)},
		)},
		"a call of more than MaxInFlight goes by itself": {3, []step{
			put(1, 10), put(7, 10), put(1, 20),
			wrote(10), quiet, answer(1), wrote(70), quiet, answer(6), wrote(20), answer(2),
		}},
		"a full queue rejects calls": {0, []step{
			put(1, 10), put(maxQueued, 10), rejected, wrote(10), wrote(10 * maxQueued), put(1, 10), wrote(10), answer(maxQueued + 2),
		}},
		"a queue that is empty accepts a call of any size": {0, []step{
			put(1, 10), put(maxQueued+1, 10), wrote(10), answer(1), wrote(10*maxQueued + 10), answer(maxQueued + 1),
		}},
		// Callers that return soon must not fill the memory if the server does not read.
		"canceled calls stay in the queue until its next write": {0, slices.Concat(
			[]step{put(1, 10), put(1, 20)}, times(maxQueued-1, putCanceled(1, 10)), []step{rejected, wrote(10), wrote(20), quiet, answer(2)},
		)},
		// A call that does not fit waits for what is in flight, and calls behind it wait, too. It need not be sent after all.
		"a canceled call does not delay the next": {2, []step{
			put(1, 10), wrote(10), put(2, 20), put(1, 30), quiet, giveUp, answer(1), wrote(30), quiet, answer(1),
		}},
		"a stale call does not delay the next": {2, []step{
			put(1, 10), wrote(10), putStale(2, 20), put(1, 30), quiet, answer(1), wrote(30), quiet, answer(1),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			onPipe(t, Options{MaxInFlight: c.maxInFlight, MaxQueued: maxQueued}, func(t *testing.T, l link) {
				for _, step := range c.steps {
					step(l)
				}
				require.Zero(t, l.Load(), "all calls are done")
				require.NoError(t, l.Err())
			})
		})
	}
}

// A call whose context has ended is not sent if it is queued. In flight, its response is still awaited, and dropped.
func TestCanceledCallKeepsItsPlaceUntilItsResponseComes(t *testing.T) {
	onPipe(t, Options{MaxInFlight: 2}, func(t *testing.T, l link) {
		inFlight := l.enqueue(2, 10)
		queued := l.enqueue(1, 20)
		last := l.enqueue(1, 30)
		require.Equal(t, 20, l.received())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		for _, cl := range []*Call{inFlight, queued} {
			done, sent, err := cl.Wait(ctx)
			require.False(t, done)
			require.Equal(t, cl == inFlight, sent)
			require.Equal(t, context.DeadlineExceeded, err)
			require.Equal(t, time.Second, time.Since(start))
		}
		l.respond(1)
		require.Equal(t, 30, l.received(), "the canceled call before it is not sent")
		l.send(0, 1, 7, 0, 4, 9, 0)
		synctest.Wait()
		done, _, err := last.Wait(ctx)
		require.True(t, done, "a call that is done belongs to its caller, though the context has ended")
		require.NoError(t, err)
		require.EqualValues(t, 7, last.Responses[0].Quota, "the canceled call's response is not taken for another's")
		require.Zero(t, l.Load())
	})
}

func TestAPingEndsAConnectionOnWhichOnlyEventsCome(t *testing.T) {
	onPipe(t, Options{StallTimeout: 4 * time.Second, OnEvent: func(Event) {}}, func(t *testing.T, l link) {
		start := time.Now()
		go func() {
			l.received()
			for {
				select {
				case <-time.After(time.Second - 1):
					l.server.Write(event(t, "c", "x"))
				case <-l.Done():
					return
				}
			}
		}()
		require.ErrorIs(t, l.Ping(t.Context()), ErrStalled)
		require.Equal(t, 6*time.Second, time.Since(start))
		<-l.Done()
		require.ErrorIs(t, l.Err(), ErrStalled)
		require.Zero(t, l.Load())
	})
}

func TestWriterGoroutineEndsAfterTheLastOwner(t *testing.T) {
	for name, end := range map[string]func(c *Conn){
		"retired": func(c *Conn) { c.Retire() },
		"failed": func(c *Conn) { // as Cut does, without a network connection
			c.mu.Lock()
			defer c.mu.Unlock()
			c.failure = ErrLost
			c.ready.Signal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &Conn{socket: &socket{}, options: Options{ // without goroutines
					MaxInFlight: 10, MaxQueued: 10, StallTimeout: time.Hour, Calls: NewCalls(SizeOf(2)),
				}}
				c.ready.L = &c.mu
				c.watchdog = time.AfterFunc(time.Hour, func() {})
				cl := queryCall(t, 1)
				writes, _, err := c.queue(cl)
				require.NoError(t, err)
				require.True(t, writes)
				_, ok := cl.abandon()
				require.True(t, ok)
				ended := false
				go func() {
					ended = !c.await()
				}()
				synctest.Wait()
				end(c)
				synctest.Wait()
				require.False(t, ended, "a caller owns the write side")
				require.False(t, c.gather())
				synctest.Wait()
				require.True(t, ended)
				c.watchdog.Stop()
			})
		})
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"socket":    func(nc net.Conn) net.Conn { return nc },
		"no socket": func(nc net.Conn) net.Conn { return wrapped{nc} },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := tcpPair(t)
			l := newLink(t, wrap(ours), theirs, Options{})
			go respond(theirs, queryFrame)
			cl := l.options.Calls.Get()
			got := testing.AllocsPerRun(500, func() {
				cl.Rewind()
				cl.frames, cl.kinds = cl.frames[:0], cl.kinds[:0]
				cl.SetKey("k")
				Add(cl, codec.Purge{Key: cl.Key})
				if err := l.Enqueue(cl); err != nil {
					t.Error(err)
				}
				if _, _, err := cl.Wait(context.Background()); err != nil {
					t.Error(err)
				}
			})
			require.Zero(t, got)
		})
	}
}

func TestAValueThatIsTooLargeIsNotSent(t *testing.T) {
	for _, bytesOf := range []int{1, 2, 4} {
		calls := NewCalls(SizeOf(bytesOf))
		tooLarge := calls.Size().Largest() + 1
		for text, add := range map[string]func(*Call) error{
			"Quota is":        func(cl *Call) error { return cl.Insert(Insert{Quota: tooLarge}) },
			"TTL is":          func(cl *Call) error { return cl.Insert(Insert{TTL: TTL{Amount: tooLarge}}) },
			"Value is":        func(cl *Call) error { return cl.Update(Update{Value: tooLarge}) },
			"key is 256 byte": func(cl *Call) error { return Add(cl, codec.Query{Key: make([]byte, codec.MaxKey+1)}) },
		} {
			cl := calls.Get()
			require.NoError(t, Add(cl, codec.Query{}))
			err := add(cl)
			require.ErrorContains(t, err, text)
			require.NoError(t, Add(cl, codec.Query{}))
			require.Equal(t, err, new(Conn).Enqueue(cl), bytesOf)
			calls.Put(cl)
			require.NoError(t, cl.invalid)
		}
	}
}
