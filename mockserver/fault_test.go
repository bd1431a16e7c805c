package mockserver_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// three are requests with different responses: 01, then a QUERY's, then 00.
var (
	threeResponses = "01" + "010500040900" + "00"
	three          = []codec.Frame{insert("k", 5, 10, codec.Seconds), query("k"), purge("missing")}
)

func (w *wire) askThree() string {
	w.t.Helper()
	return w.ask(three[0], three[1], three[2])
}

func TestFaultsChangeResponses(t *testing.T) {
	for name, c := range map[string]struct {
		fault mockserver.Fault
		want  string
	}{
		"drop":             {mockserver.Fault{Op: codec.OpQuery, Drop: true}, "01" + "00"},
		"duplicate":        {mockserver.Fault{Op: codec.OpQuery, Duplicate: true}, "01" + "010500040900010500040900" + "00"},
		"replace":          {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{0xde, 0xad}}, "01" + "dead" + "00"},
		"replace, twice":   {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{7}, Duplicate: true}, "01" + "0707" + "00"},
		"replace, nothing": {mockserver.Fault{Op: codec.OpQuery, Replace: []byte{}}, "01" + "00"},
		"any op":           {mockserver.Fault{Replace: []byte{7}}, "070707"},
		"skip":             {mockserver.Fault{Skip: 2, Replace: []byte{7}}, "01" + "010500040900" + "07"},
		"times":            {mockserver.Fault{Times: 2, Replace: []byte{7}}, "0707" + "00"},
		"skip and times":   {mockserver.Fault{Skip: 1, Times: 1, Replace: []byte{7}}, "01" + "07" + "00"},
		"another op":       {mockserver.Fault{Op: codec.OpGet, Drop: true}, threeResponses},
	} {
		subtest(t, name, func(t *testing.T, srv *mockserver.Server) {
			remove := srv.Inject(c.fault)
			w := connect(t, srv)
			require.Equal(t, c.want, w.askThree())
			require.Equal(t, []string{"k"}, srv.Keys(), "the request is executed")
			remove()
			remove()
			srv.Delete("k")
			require.Equal(t, threeResponses, w.askThree())
		}, virtual)
	}
}

func TestDelayHoldsBackLaterResponses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second})
		w := connect(t, srv)
		require.Equal(t, "01", w.askThree())
		require.Equal(t, 1, srv.Requests(codec.OpPurge), "the request is executed before the delay")
		time.Sleep(time.Second - 1)
		require.Empty(t, w.received())
		time.Sleep(time.Nanosecond)
		require.Equal(t, threeResponses[2:], w.received())

		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: time.Second})
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Replace: []byte{7}}) // the first one applies
		w.ask(purge("k"))
		time.Sleep(time.Second)
		require.Equal(t, "01", w.received())
		w.askThree()
		time.Sleep(time.Second)
		require.Equal(t, threeResponses[2:], w.received(), "delayed responses do not wait for each other")
	}, virtual)
}

func TestDisconnectReplacesResponse(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Disconnect: true, Times: 1})
		w := connect(t, srv)
		w.send(frames(t, three[0], three[1], insert("after", 1, 1, codec.Hours)))
		pieces, closed := w.pieces()
		require.True(t, closed)
		require.Equal(t, [][]byte{{1}}, pieces)
		require.Equal(t, []string{"k"}, srv.Keys(), "later requests are not executed")
		require.Zero(t, srv.Conns())
		require.Empty(t, srv.Violations())

		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second})
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Disconnect: true})
		w = connect(t, srv)
		w.send(frames(t, query("k"), purge("k")))
		require.Empty(t, w.received())
		time.Sleep(time.Second)
		pieces, closed = w.pieces()
		require.True(t, closed)
		require.Len(t, pieces, 1, "earlier responses are sent first, delayed ones, too")
	})
}

func TestSplitBoundsWrites(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Split(3)
		w := connect(t, srv)
		w.send(frames(t, three[0], three[1], three[2]))
		sizes := func() (sizes []int) {
			pieces, _ := w.pieces()
			for _, p := range pieces {
				sizes = append(sizes, len(p))
			}
			return sizes
		}
		require.Equal(t, []int{3, 3, 2}, sizes())
		srv.Split(1)
		w.send(frames(t, three[1]))
		require.Equal(t, []int{1, 1, 1, 1, 1, 1}, sizes())
		srv.Split(0)
		w.send(frames(t, three[1]))
		require.Equal(t, []int{6}, sizes())
	})
}

func TestConnectionsAreCutAtEachByte(t *testing.T) {
	p := frames(t, three[0], three[1], three[2])
	ends := []int{len(frames(t, three[0])), len(frames(t, three[0], three[1])), len(p)}
	responses := []string{"", threeResponses[:2], threeResponses[:14], threeResponses}
	cut := func(t *testing.T, direction mockserver.Direction, n, length, executed int, want string) {
		bubble(t, func(t *testing.T, srv *mockserver.Server) {
			srv.Cut(mockserver.Cut{Direction: direction, After: n, Times: 1})
			w := connect(t, srv)
			w.send(p)
			pieces, closed := w.pieces()
			require.Equal(t, want, hex.EncodeToString(bytes.Join(pieces, nil)), "%v, %d bytes", direction, n)
			require.Equal(t, n < length, closed, "a connection is cut before the next byte, and there is none")
			require.Equal(t, executed, srv.Requests(codec.OpInsert)+srv.Requests(codec.OpQuery)+srv.Requests(codec.OpPurge))
			require.Empty(t, srv.Violations())
			require.Equal(t, "00", connect(t, srv).ask(query("missing")), "the next connection works")
		}, virtual)
	}
	for n := range len(threeResponses)/2 + 1 {
		cut(t, mockserver.ToClient, n, len(threeResponses)/2, 3, threeResponses[:2*n])
	}
	for n := range len(p) + 1 {
		complete := 0
		for complete < 3 && n >= ends[complete] {
			complete++
		}
		cut(t, mockserver.FromClient, n, len(p), complete, responses[complete])
	}
	require.Equal(t, "from client, to client", fmt.Sprintf("%v, %v", mockserver.FromClient, mockserver.ToClient))
}

func TestHalfOpenConnectionLosesAllBytes(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Delay: time.Second})
		require.Empty(t, w.ask(purge("late")))
		srv.HalfOpen()
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		srv.Publish("*", nil)
		time.Sleep(2 * time.Second)
		require.Empty(t, w.received())
		require.False(t, w.closed())
		require.Empty(t, srv.Keys(), "nothing is executed")
		require.Equal(t, threeResponses[:14], connect(t, srv).ask(three[0], three[1]), "the next connection works")
		srv.Disconnect()
		require.True(t, w.closed())
	}, virtual)
}

func TestRecompileChangesTheValueSize(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		require.Equal(t, threeResponses, w.askThree())
		require.Error(t, srv.Recompile(3))
		require.Equal(t, []string{"k"}, srv.Keys())
		require.NoError(t, srv.Recompile(1))
		require.True(t, w.closed())
		require.Empty(t, srv.Keys())
		w = connect(t, srv)
		w.send([]byte{1, 5, 4, 10, 1, 'k', 2, 1, 'k'})
		require.Equal(t, "01"+"01050409", w.received())
	}, virtual)
}

func TestOverflowDropsResponses(t *testing.T) {
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Second, Times: 1})
		w := connect(t, srv)
		require.Empty(t, w.ask(query("k")))
		for range 1024 {
			srv.Publish("c", nil)
		}
		require.Empty(t, w.ask(insert("k", 5, 10, codec.Seconds)))
		time.Sleep(time.Second)
		require.Equal(t, "00"+strings.Repeat("1901000063", 1023), w.received())
		require.Equal(t, []string{"k"}, srv.Keys(), "the request is executed")
		require.Equal(t, "00", w.ask(purge("missing")))
		require.Empty(t, srv.Violations())
	}, virtual, with(mockserver.Overflow))
}
