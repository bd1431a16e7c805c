package throttr_test

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

func TestInspectionReportsWhatTheServerHolds(t *testing.T) {
	t.Run("uint8", testInspection[uint8])
	t.Run("uint16", testInspection[uint16])
	t.Run("uint32", testInspection[uint32])
	t.Run("uint64", testInspection[uint64])
}

// testInspection has a subtest for each scenario of the recordings of real servers that
// inspects a server.
func testInspection[T codec.Value](t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(codec.Size[T]()), mockserver.WithVirtualClock())
	client := testkit.Connect[T](t, srv, throttr.Config{MaxConns: 1})
	ctx, start, size := t.Context(), srv.Now(), uint64(codec.Size[T]())
	ttl := codec.TTL[T]{Amount: 9, Unit: codec.Minutes}

	t.Run("list", func(t *testing.T) {
		got, err := testkit.Collect(t, client.List(ctx))
		require.NoError(t, err)
		require.Empty(t, got)
		client.Insert(ctx, "one", 5, ttl)
		client.Set(ctx, "buf", []byte("hello"), codec.TTL[T]{Amount: 2, Unit: codec.Hours})
		got, err = testkit.Collect(t, client.List(ctx))
		require.NoError(t, err)
		slices.SortFunc(got, func(a, b inspect.Record) int { return int(a.Kind) - int(b.Kind) })
		for i := range got {
			require.WithinDuration(t, start.Add([]time.Duration{9 * time.Minute, 2 * time.Hour}[i]), got[i].ExpiresAt, time.Microsecond)
			got[i].ExpiresAt = time.Time{}
		}
		require.Equal(t, []inspect.Record{
			{Server: srv.Addr(), Key: "one", Kind: inspect.Counter, Unit: codec.Minutes, BytesUsed: size},
			{Server: srv.Addr(), Key: "buf", Kind: inspect.Buffer, Unit: codec.Hours, BytesUsed: 5},
		}, got)
		require.Equal(t, "counter buffer", got[0].Kind.String()+" "+got[1].Kind.String())
	})

	t.Run("stat", func(t *testing.T) {
		_, ok, err := client.Stat(ctx, "no")
		require.NoError(t, err)
		require.False(t, ok)
		client.Insert(ctx, "k", 5, ttl)
		for range 3 {
			client.Query(ctx, "k")
			client.Update(ctx, "k", codec.Quota, codec.Patch, 1)
		}
		stat, ok, err := client.Stat(ctx, "k")
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, stat, "the minute is not over")
		srv.Advance(time.Minute)
		stat, _, err = client.Stat(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, stat.Writes, stat.WritesPerMinute)
		require.GreaterOrEqual(t, stat.Reads, uint64(3))
		require.GreaterOrEqual(t, stat.Writes, uint64(3))
		srv.Advance(time.Minute)
		stat, _, err = client.Stat(ctx, "k")
		require.NoError(t, err)
		require.Zero(t, stat.WritesPerMinute)
		require.NotZero(t, stat.Writes)

		all, err := testkit.Collect(t, client.KeyStats(ctx))
		require.NoError(t, err)
		require.Len(t, all, 3)
		i := slices.IndexFunc(all, func(e inspect.KeyUsage) bool { return e.Key == "k" })
		require.Equal(t, srv.Addr(), all[i].Server)
		require.Equal(t, stat.Writes, all[i].Writes)
	})

	// waitForOneConn waits until the server knows that the connections of listings are closed.
	waitForOneConn := func(t *testing.T) {
		t.Helper()
		require.Eventually(t, func() bool { return srv.Conns() == 1 }, 5*time.Second, time.Millisecond)
	}

	t.Run("info", func(t *testing.T) {
		waitForOneConn(t)
		info, err := client.Info(ctx)
		require.NoError(t, err)
		require.Len(t, info, 1)
		require.Equal(t, srv.Addr(), info[0].Server)
		require.Equal(t, "5.0.11", info[0].Version)
		require.True(t, start.Equal(info[0].RunningSince))
		require.Equal(t, srv.Now().Truncate(time.Second).UTC(), info[0].Time)
		require.Equal(t, inspect.Count{Total: 2}, info[0].Requests.List)
		require.Equal(t, uint64(3), info[0].Keys)
		require.Equal(t, uint64(2), info[0].Counters)
		require.Equal(t, uint64(1), info[0].Buffers)
		require.Equal(t, 2*size, info[0].CounterBytes)
		require.Equal(t, uint64(5), info[0].BufferBytes)
		require.Equal(t, uint64(1), info[0].Connections)
		require.NotZero(t, info[0].ReadBytes.Total)
	})

	t.Run("whoami_connection", func(t *testing.T) {
		who, err := client.WhoAmI(ctx)
		require.NoError(t, err)
		require.Len(t, who, 1)
		require.Equal(t, srv.Addr(), who[0].Server)
		_, ok, err := client.Connection(ctx, srv.Addr(), codec.ConnID{})
		require.NoError(t, err)
		require.False(t, ok)
		self, ok, err := client.Connection(ctx, srv.Addr(), who[0].ID)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, who[0].ID, self.ID)
		require.Equal(t, srv.Addr(), self.Server)
		require.Equal(t, codec.TCP, self.Kind)
		require.Equal(t, netip.MustParseAddr("127.0.0.1"), self.Addr.Addr())
		require.NotZero(t, self.Addr.Port())
		require.True(t, start.Equal(self.ConnectedAt))
		require.Equal(t, uint64(4), self.Requests.Query, "the probe makes one")
		require.Equal(t, uint64(2), self.Requests.Connection)
		_, _, err = client.Connection(ctx, "elsewhere:1", who[0].ID)
		require.ErrorIs(t, err, throttr.ErrConfig)

		waitForOneConn(t)
		all, err := testkit.Collect(t, client.Connections(ctx))
		require.NoError(t, err)
		require.Len(t, all, 2, "that of CONNECTIONS, too")
		require.Equal(t, who[0].ID, all[0].ID)
		require.Equal(t, uint64(1), all[1].Requests.Connections)
	})

	t.Run("channels", func(t *testing.T) {
		_, ok, err := client.Channel(ctx, "nochannel")
		require.NoError(t, err)
		require.False(t, ok)
		ok, err = client.Publish(ctx, "news", []byte("without subscribers"))
		require.NoError(t, err)
		require.False(t, ok)
		id := subscribe[T](t, srv, "news")
		ok, err = client.Publish(ctx, "news", []byte("hello"))
		require.NoError(t, err)
		require.True(t, ok)

		subscribers, ok, err := client.Channel(ctx, "news")
		require.NoError(t, err)
		require.True(t, ok)
		require.Len(t, subscribers, 1)
		require.Equal(t, srv.Addr(), subscribers[0].Server)
		require.Equal(t, id, subscribers[0].ID)
		require.True(t, srv.Now().Equal(subscribers[0].Since) || subscribers[0].Since.Sub(srv.Now()) < time.Microsecond)
		require.Equal(t, uint64(5), subscribers[0].ReadBytes)

		var names []string
		all, err := testkit.Collect(t, client.Channels(ctx))
		require.NoError(t, err)
		for _, c := range all {
			require.Equal(t, srv.Addr(), c.Server)
			names = append(names, c.Name)
		}
		require.Contains(t, names, "*")
		require.Contains(t, names, "news")
		require.Contains(t, names, id.String())
		i := slices.Index(names, "news")
		require.Equal(t, uint64(1), all[i].Connections)
		require.Equal(t, uint64(5), all[i].ReadBytes)

		ok, err = client.Publish(ctx, "*", []byte("all"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, testkit.ServerStats(client).Events, "the client has unsubscribed (H21)")
	})
}

// subscribe makes a connection that is subscribed to a channel, and returns its id.
func subscribe[T codec.Value](t *testing.T, srv *mockserver.Server, channel string) codec.ConnID {
	t.Helper()
	nc, err := srv.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, codec.NewEncoder[T](nc).Encode(codec.Subscribe{Channel: []byte(channel)}, codec.WhoAmI{}))
	d := codec.NewDecoder[T](nc)
	status, err := d.Response(codec.KindStatus)
	require.NoError(t, err)
	require.Equal(t, codec.Success, status)
	who, err := d.Response(codec.KindWhoAmI)
	require.NoError(t, err)
	return who.(codec.WhoAmIResponse).ID
}

func TestConnectionLostDuringAList(t *testing.T) {
	srv := testkit.InMemory(t)
	client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
	for i := range 5000 {
		srv.Set(strconv.Itoa(i), 1, time.Minute)
	}
	n := 0
	var last error
	for _, err := range client.List(t.Context()) {
		if last = err; err != nil {
			break
		}
		if n++; n == 1 {
			srv.Disconnect()
		}
	}
	require.ErrorIs(t, last, throttr.ErrConnLost)
	require.False(t, testkit.SafeToRetry(last))
	require.Less(t, n, 5000)
	all, err := testkit.Collect(t, client.List(t.Context()))
	require.NoError(t, err, "the next LIST uses another connection")
	require.Len(t, all, 5000)
	client.Close()
	testkit.RequireNoGoroutines(t)
	require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
}

func TestResponsesInPiecesOfOneByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithSplit(1))
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		var want []inspect.Record
		for i := range 200 {
			key := strconv.Itoa(i)
			srv.Set(key, 1, time.Minute)
			want = append(want, inspect.Record{
				Server: srv.Addr(), Key: key, Kind: inspect.Counter, Unit: codec.Milliseconds,
				ExpiresAt: time.Now().Add(time.Minute).UTC(), BytesUsed: 2,
			})
		}
		list, err := testkit.Collect(t, client.List(t.Context()))
		require.NoError(t, err)
		require.ElementsMatch(t, want, list)
		testkit.Subscribe(t, client, pubsub.All)
		subscribers, ok, err := client.Channel(t.Context(), "*")
		require.NoError(t, err)
		require.True(t, ok)
		require.Len(t, subscribers, 1)
		info, err := client.Info(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 200, info[0].Counters)
		require.Equal(t, "5.0.11", info[0].Version)
		stat, ok, err := client.Stat(t.Context(), "7")
		require.NoError(t, err)
		require.True(t, ok)
		require.Zero(t, stat)
	})
}

func TestRequestThatCannotBeEncodedIsNotSent(t *testing.T) {
	srv := mockserver.RunT(t, mockserver.WithValueSize(1))
	client := testkit.Connect[uint8](t, srv, throttr.Config{})
	ctx, long := t.Context(), string(make([]byte, 256))
	_, _, err := client.Stat(ctx, long)
	require.ErrorIs(t, err, codec.ErrTooLarge)
	_, _, err = client.Channel(ctx, long)
	require.ErrorIs(t, err, codec.ErrTooLarge)
	_, err = client.Publish(ctx, long, nil)
	require.ErrorIs(t, err, codec.ErrTooLarge)
	_, err = client.Publish(ctx, "c", make([]byte, 256))
	require.ErrorIs(t, err, codec.ErrTooLarge)
	require.Zero(t, srv.Requests(codec.OpStat)+srv.Requests(codec.OpChannel)+srv.Requests(codec.OpPublish))
}

func TestOnlyReadsAreSentAgain(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	for op, ask := range map[codec.Op]func(context.Context) error{
		codec.OpStat:   func(ctx context.Context) error { _, _, err := client.Stat(ctx, "k"); return err },
		codec.OpInfo:   func(ctx context.Context) error { _, err := client.Info(ctx); return err },
		codec.OpWhoAmI: func(ctx context.Context) error { _, err := client.WhoAmI(ctx); return err },
	} {
		before := srv.Requests(op)
		srv.Inject(mockserver.Fault{Op: op, Times: 1, Disconnect: true})
		require.NoError(t, ask(t.Context()), op)
		want := 2
		if op == codec.OpWhoAmI {
			want++ // of the handshake of the next connection
		}
		require.Equal(t, want, srv.Requests(op)-before)
	}
	srv.Inject(mockserver.Fault{Op: codec.OpPublish, Times: 1, Disconnect: true})
	_, err := client.Publish(t.Context(), "c", nil)
	require.ErrorIs(t, err, throttr.ErrConnLost)
	require.Equal(t, 1, srv.Requests(codec.OpPublish))
}
