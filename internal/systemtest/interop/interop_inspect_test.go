package interop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// What these tests look at is there for everybody, and others change it meanwhile. They
// publish only where nobody else listens.

func interopList[T codec.Value](t *testing.T, in *interop[T]) {
	counter, buffer := in.key(t, "counter"), in.key(t, "buffer")
	ok, err := in.client.Insert(in.ctx, counter, 5, in.ttl)
	requireOK(t, ok, err)
	ok, err = in.client.Set(in.ctx, buffer, []byte("hello"), in.ttl)
	requireOK(t, ok, err)
	info := in.info(t)
	all, err := testkit.Collect(t, in.client.List(in.ctx))
	require.NoError(t, err)
	mine := map[string]throttr.ListEntry{}
	for _, e := range all {
		if e.Key == counter || e.Key == buffer {
			require.NotContains(t, mine, e.Key)
			require.WithinDuration(t, info.Time.Add(in.ttl.Duration()), e.ExpiresAt, 30*time.Second, "by the server's clock")
			e.ExpiresAt = time.Time{}
			mine[e.Key] = e
		}
	}
	require.Equal(t, map[string]throttr.ListEntry{
		counter: {
			Server: in.addr, Key: counter, Kind: throttr.KindCounter, Unit: in.ttl.Unit, BytesUsed: uint64(codec.Size[T]()),
		},
		buffer: {Server: in.addr, Key: buffer, Kind: throttr.KindBuffer, Unit: in.ttl.Unit, BytesUsed: 5},
	}, mine)
}

func interopStats[T codec.Value](t *testing.T, in *interop[T]) {
	k := in.key(t, "used")
	_, ok, err := in.client.Stat(in.ctx, k)
	requireFailure(t, ok, err)
	ok, err = in.client.Insert(in.ctx, k, 5, in.ttl)
	requireOK(t, ok, err)
	stat, ok, err := in.client.Stat(in.ctx, k)
	requireOK(t, ok, err)
	require.Less(t, stat.Reads+stat.Writes, uint64(100), "worked out once a minute, and little has happened")
	all, err := testkit.Collect(t, in.client.KeyStats(in.ctx))
	require.NoError(t, err)
	found := 0
	for _, e := range all {
		if e.Key == k {
			found++
			require.Equal(t, in.addr, e.Server)
			require.Less(t, e.Reads+e.Writes, uint64(100))
		}
	}
	require.Equal(t, 1, found)
}

func interopInfo[T codec.Value](t *testing.T, in *interop[T]) {
	counter, buffer := in.key(t, "counter"), in.key(t, "buffer")
	ok, err := in.client.Insert(in.ctx, counter, 5, in.ttl)
	requireOK(t, ok, err)
	ok, err = in.client.Set(in.ctx, buffer, []byte("hello"), in.ttl)
	requireOK(t, ok, err)
	info := in.info(t)
	require.NotEmpty(t, info.Version)
	require.False(t, info.Time.Before(info.RunningSince.Truncate(time.Second)))
	require.NotZero(t, info.Counters)
	require.NotZero(t, info.Buffers)
	require.Equal(t, info.Keys, info.Counters+info.Buffers)
	require.GreaterOrEqual(t, info.CounterBytes, uint64(codec.Size[T]()))
	require.GreaterOrEqual(t, info.BufferBytes, uint64(len("hello")))
	require.NotZero(t, info.Connections)
	t.Logf("%s runs version %s", in.addr, info.Version)
}

// info returns what the server tells of itself.
func (in *interop[T]) info(t *testing.T) throttr.ServerInfo {
	t.Helper()
	all, err := in.client.Info(in.ctx)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, in.addr, all[0].Server)
	return all[0]
}

func interopConnections[T codec.Value](t *testing.T, in *interop[T]) {
	who, err := in.client.WhoAmI(in.ctx)
	require.NoError(t, err)
	require.Len(t, who, 1)
	self, ok, err := in.client.Connection(in.ctx, in.addr, who[0].ID)
	requireOK(t, ok, err)
	require.Equal(t, who[0].ID, self.ID)
	require.Equal(t, in.addr, self.Server)
	require.Equal(t, codec.ClientConnection, self.Type)
	require.Equal(t, self.Kind == codec.TCP, self.Addr.Port() != 0)
	require.NotZero(t, self.Requests.Insert, "the probe")
	_, ok, err = in.client.Connection(in.ctx, in.addr, codec.ConnID{})
	requireFailure(t, ok, err)
	all, err := testkit.Collect(t, in.client.Connections(in.ctx))
	require.NoError(t, err)
	found := 0
	for _, e := range all {
		if e.ID == self.ID {
			found++
			require.Equal(t, self.Addr, e.Addr)
			require.Equal(t, self.ConnectedAt, e.ConnectedAt)
		}
	}
	require.Equal(t, 1, found)
}

func interopSubscriptions[T codec.Value](t *testing.T, in *interop[T]) {
	channel := in.run + "news"
	_, ok, err := in.client.Channel(in.ctx, channel)
	requireFailure(t, ok, err)
	ok, err = in.client.Publish(in.ctx, channel, []byte("nobody"))
	requireFailure(t, ok, err)

	one, two := in.subscribe(t, channel), in.subscribe(t, channel)
	for _, payload := range []string{"hello", "", "\x00\x01\x19"} {
		ok, err = in.client.Publish(in.ctx, channel, []byte(payload))
		requireOK(t, ok, err)
		for _, sub := range []*throttr.Subscription{one, two} {
			m, err := sub.Next(in.ctx)
			require.NoError(t, err)
			require.Equal(t, []string{in.addr, channel, payload}, []string{m.Server, m.Channel, string(m.Payload)})
			require.False(t, m.Gap)
		}
	}

	id, ok := one.ConnID(in.addr)
	require.True(t, ok)
	subscribers, ok, err := in.client.Channel(in.ctx, channel)
	requireOK(t, ok, err)
	require.Len(t, subscribers, 1, "two share one subscription")
	require.Equal(t, id, subscribers[0].ID)
	all, err := testkit.Collect(t, in.client.Channels(in.ctx))
	require.NoError(t, err)
	channels := map[string]uint64{}
	for _, c := range all {
		channels[c.Name] = c.Connections
	}
	require.Equal(t, uint64(1), channels[channel])
	require.Equal(t, uint64(1), channels[id.String()])
	require.NotZero(t, channels[throttr.AllChannel])

	one.Close()
	ok, err = in.client.Publish(in.ctx, channel, []byte("last"))
	requireOK(t, ok, err)
	m, err := two.Next(in.ctx)
	require.NoError(t, err)
	require.Equal(t, "last", string(m.Payload), "and nothing twice before")
	two.Close()
	require.Eventually(t, func() bool {
		_, ok, err := in.client.Channel(in.ctx, channel)
		return !ok && err == nil
	}, 10*time.Second, time.Millisecond, "the server is told in the background")
}

func interopOwnChannel[T codec.Value](t *testing.T, in *interop[T]) {
	sub := in.subscribe(t, throttr.OwnChannel)
	in.subscribe(t, throttr.AllChannel) // where anything may come
	id, ok := sub.ConnID(in.addr)
	require.True(t, ok)
	ok, err := in.client.Publish(in.ctx, id.String(), []byte("hello"))
	requireOK(t, ok, err)
	m, err := sub.Next(in.ctx)
	require.NoError(t, err)
	require.Equal(t, throttr.Message{Server: in.addr, Channel: id.String(), Payload: []byte("hello")}, m)
}

// subscribe makes a subscription that is closed when the test ends.
func (in *interop[T]) subscribe(t *testing.T, channel string) *throttr.Subscription {
	t.Helper()
	sub, err := in.client.Subscribe(in.ctx, channel)
	require.NoError(t, err)
	t.Cleanup(func() { sub.Close() })
	return sub
}
