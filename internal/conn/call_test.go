package conn

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

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
