package conn

import (
	"net"
	"testing"

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
