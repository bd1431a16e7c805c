package load_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/tools/load"
	"github.com/throttr-go/throttr/mockserver"
)

var rawKeys = load.KeySet{Prefix: "k", N: 50}

// servers starts a server that listens on a port and one that listens on a unix socket. Both
// have the keys.
func servers(t *testing.T) (all []*mockserver.Server, addresses []dial.Address) {
	for _, opts := range [][]mockserver.Option{nil, {mockserver.WithAddr("unix", t.TempDir()+"/s")}} {
		srv := mockserver.RunT(t, opts...)
		for i := range rawKeys.N {
			srv.Set(rawKeys.Key(i), 0, time.Hour)
		}
		a, err := dial.ParseAddress(srv.Addr())
		require.NoError(t, err)
		all, addresses = append(all, srv), append(addresses, a)
	}
	return all, addresses
}

// measure measures for longer and longer until something has been done: a busy machine may do
// nothing for a while.
func measure(t *testing.T, c load.Contender) (res load.Result, err error) {
	for d := 20 * time.Millisecond; err == nil && res.Operations == 0 && d < 10*time.Second; d *= 2 {
		res, err = c.Measure(t.Context(), load.Config{Duration: d})
	}
	return res, err
}

func TestRawKeepsOperationsOutstanding(t *testing.T) {
	for w, op := range map[load.Workload]codec.Op{
		load.Hit: codec.OpUpdate, load.Increase: codec.OpUpdate, load.Query: codec.OpQuery,
	} {
		all, addresses := servers(t)
		raw, err := load.NewRaw(t.Context(), load.RawConfig{
			Servers: addresses, Conns: 2, Outstanding: 7, Frames: load.FramesOf[uint16](w), Keys: rawKeys,
		})
		require.NoError(t, err)
		defer raw.Close()
		require.Equal(t, 2, raw.Conns())
		res, err := measure(t, raw)
		require.NoError(t, err, w)
		require.NoError(t, res.Failure())
		requests := 0
		for _, srv := range all {
			require.Positive(t, srv.Requests(op), w)
			require.Len(t, srv.Keys(), rawKeys.N)
			requests += srv.Requests(op)
		}
		require.GreaterOrEqual(t, uint64(requests), res.Operations)
		require.LessOrEqual(t, res.P50, res.Max)
	}
}

func TestRawReportsUnexpectedResponse(t *testing.T) {
	all, addresses := servers(t)
	all[0].Inject(mockserver.Fault{Op: codec.OpUpdate, Skip: 20, Replace: []byte{0}})
	raw, err := load.NewRaw(t.Context(), load.RawConfig{
		Servers: addresses[:1], Conns: 1, Outstanding: 3, Frames: load.FramesOf[uint16](load.Increase), Keys: rawKeys,
	})
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Measure(t.Context(), load.Config{Duration: time.Minute})
	require.ErrorContains(t, err, "a response begins with 0x00")
}

func TestRawEndsWithContext(t *testing.T) {
	all, addresses := servers(t)
	raw, err := load.NewRaw(t.Context(), load.RawConfig{
		Servers: addresses, Conns: 1, Outstanding: 2, Frames: load.FramesOf[uint16](load.Query), Keys: rawKeys,
	})
	require.NoError(t, err)
	defer raw.Close()
	defer all[0].Inject(mockserver.Fault{Op: codec.OpQuery, Delay: time.Minute})() // its responses do not come
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = raw.Measure(ctx, load.Config{Duration: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// What is sent to clean up must not overtake the last requests.
func TestRawThatIsInterruptedWaitsForItsLastRequests(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	srv := mockserver.RunT(t, mockserver.WithServiceTime(100*time.Microsecond), mockserver.WithObserver(func(mockserver.Exec) { interrupt() }))
	srv.Set(rawKeys.Key(0), 0, time.Hour)
	a, err := dial.ParseAddress(srv.Addr())
	require.NoError(t, err)
	raw, err := load.NewRaw(t.Context(), load.RawConfig{
		Servers: []dial.Address{a}, Conns: 1, Outstanding: 1000, Frames: load.FramesOf[uint16](load.Increase), Keys: load.KeySet{Prefix: "k", N: 1},
	})
	require.NoError(t, err)
	defer raw.Close()
	_, err = raw.Measure(ctx, load.Config{Duration: time.Minute})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, srv.Leaked(), "all responses are read")
	require.GreaterOrEqual(t, srv.Requests(codec.OpUpdate), 1000)
}

func TestRawStaysBelowResponseLimitOfServer(t *testing.T) {
	_, addresses := servers(t)
	for w, most := range map[load.Workload]int{load.Increase: 1023, load.Hit: 511} {
		cfg := load.RawConfig{Servers: addresses, Conns: 1, Outstanding: 2 * most, Frames: load.FramesOf[uint16](w), Keys: load.KeySet{Prefix: "k", N: 1}}
		raw, err := load.NewRaw(t.Context(), cfg)
		require.NoError(t, err, w)
		raw.Close()
		cfg.Outstanding++
		_, err = load.NewRaw(t.Context(), cfg)
		require.ErrorContains(t, err, "on 2 connections are more than the 1023 responses that a server keeps for each (H4)")
	}
}
