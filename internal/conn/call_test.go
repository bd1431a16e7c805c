package conn

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestCallPoolReturnsEmptyCalls(t *testing.T) {
	var p CallPool[uint16]
	cl := p.Get()
	cl.SetKey("key")
	require.NoError(t, Add(cl, codec.Query{Key: cl.Key}))
	require.NoError(t, Add[uint16, codec.Request](cl, codec.Get{Key: cl.Key}))
	require.Equal(t, 2, cl.Len())
	require.True(t, cl.ReadOnly())
	cl.Atomicity, cl.MostTTL = Exclusive, 60
	cl.Stale = func() bool { return true }
	cl.Unasked = true
	cl.Responses = append(cl.Responses, Response[uint16]{Value: []byte("x")})
	require.True(t, cl.markLaunched())

	cl.empty()
	require.Zero(t, cl.Len())
	require.Empty(t, cl.frames)
	require.Empty(t, cl.Responses)
	require.Nil(t, cl.Responses[:1][0].Value, "values are not kept")
	require.Nil(t, cl.Stale)
	require.Equal(t, Interruptible, cl.Atomicity)
	require.Zero(t, cl.MostTTL)
	require.False(t, cl.Unasked)
	require.True(t, cl.markLaunched())

	cl.frames = make([]byte, 10_000)
	cl.empty()
	require.Nil(t, cl.frames, "large buffers are not kept")
}

func TestAddLeavesTheCallUnchangedOnAnError(t *testing.T) {
	cl := new(CallPool[uint16]).Get()
	require.NoError(t, Add(cl, codec.Query{Key: []byte("k")}))
	require.Error(t, Add(cl, codec.Query{Key: make([]byte, 256)}))
	require.Equal(t, 1, cl.Len())
	require.Len(t, cl.frames, queryFrame)
}

func TestDoneCallBelongsToItsCallerThoughTheContextHasEnded(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		ctx, cancel := context.WithCancel(t.Context())
		cl := l.enqueue(Interruptible, 1, 10)
		l.received()
		l.respond(1)
		cancel()
		done, _, err := cl.Wait(ctx)
		require.True(t, done)
		require.NoError(t, err)
	})
}

func TestWaitReturnsWhenTheContextEnds(t *testing.T) {
	onPipe(t, Options[uint16]{}, func(t *testing.T, l link) {
		cl := l.enqueue(Interruptible, 1, 10)
		next := l.enqueue(Interruptible, 1, 20)
		l.received()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		done, sent, err := cl.Wait(ctx)
		require.Equal(t, time.Second, time.Since(begun))
		require.False(t, done)
		require.True(t, sent)
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 20, l.received())
		l.send(0, 1, 7, 0, 4, 9, 0)
		synctest.Wait()
		l.requireDone(next)
		require.EqualValues(t, 7, next.Responses[0].Quota, "the canceled call's response is not taken for another's")
		require.Zero(t, l.Load())
	})
}

func TestCallsDoNotAllocate(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"socket":    func(nc net.Conn) net.Conn { return nc },
		"no socket": func(nc net.Conn) net.Conn { return wrapped{nc} },
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := tcpPair(t)
			l := newLink(t, wrap(ours), theirs, Options[uint16]{})
			go respond(theirs, queryFrame)
			cl := l.options.Calls.Get()
			got := testing.AllocsPerRun(500, func() {
				cl.empty()
				cl.SetKey("k")
				Add(cl, codec.Purge{Key: cl.Key})
				if err := l.Enqueue(cl, true); err != nil {
					t.Error(err)
				}
				if _, _, err := cl.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
			require.Zero(t, got)
		})
	}
}
