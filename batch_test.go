package throttr_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

// family is some servers in memory, and a client of all of them.
type family struct {
	names   []string
	servers map[string]*mockserver.Server
}

func newFamily(t *testing.T, n int) *family {
	f := &family{servers: make(map[string]*mockserver.Server)}
	for i := range n {
		name := fmt.Sprintf("server%d:9000", i)
		f.names = append(f.names, name)
		f.servers[name] = mockserver.RunT(t, mockserver.WithAddr("memory", name))
	}
	return f
}

func (f *family) connect(t *testing.T, cfg throttr.Config, names ...string) *throttr.Client[uint16] {
	cfg.Servers = names
	cfg.Dial = func(ctx context.Context, _, address string) (net.Conn, error) { return f.servers[address].Dial(ctx) }
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// home returns where key is.
func (f *family) home(key string) string {
	for _, name := range f.names {
		if _, ok := f.servers[name].Counter(key); ok {
			return name
		}
	}
	return ""
}

func TestABatchSpansServersAndClientsAgreeWhereAKeyLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 300
		f := newFamily(t, 3)
		client := f.connect(t, throttr.Config{MaxInFlight: 30}, f.names...)
		var b throttr.Batch[uint16]
		var inserts []throttr.Reply[uint16]
		var queries []throttr.CounterReply[uint16]
		for i := range keys {
			key := fmt.Sprint("user:", i)
			inserts = append(inserts, b.Insert(key, uint16(i), testkit.Minute))
			queries = append(queries, b.Query(key))
		}
		require.Equal(t, 2*keys, b.Len())
		require.NoError(t, client.Do(t.Context(), &b))
		homes := map[string]int{}
		for i := range keys {
			ok, err := inserts[i].OK()
			require.NoError(t, err)
			require.True(t, ok)
			c, ok, err := queries[i].Counter()
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, c.Quota)
			homes[f.home(fmt.Sprint("user:", i))]++
		}
		require.Len(t, homes, 3)

		// Another client, told the servers in another order, finds all of them.
		other := f.connect(t, throttr.Config{}, f.names[2], f.names[0], f.names[1])
		for i := range keys {
			c, ok, err := other.Query(t.Context(), fmt.Sprint("user:", i))
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, i, c.Quota)
		}
		// One that does not know a server misses only what that server has.
		fewer := f.connect(t, throttr.Config{}, f.names[:2]...)
		for i := range keys {
			key := fmt.Sprint("user:", i)
			_, ok, err := fewer.Query(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, f.home(key) != f.names[2], ok, key)
		}
		for i, s := range client.Stats().Servers {
			require.Equal(t, f.names[i], s.Server)
			require.EqualValues(t, 2*homes[s.Server], s.Answered)
		}
	})
}

func TestABatchThatCannotBeEncodedSendsNothing(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	long := string(bytes.Repeat([]byte{'k'}, 256))
	for name, bad := range map[string]struct {
		add func(*throttr.Batch[uint16])
		err error
	}{
		"key":       {func(b *throttr.Batch[uint16]) { b.Query(long) }, codec.ErrTooLarge},
		"value":     {func(b *throttr.Batch[uint16]) { b.Set("k", make([]byte, 8090), testkit.Minute) }, codec.ErrTooLarge},
		"TTL":       {func(b *throttr.Batch[uint16]) { b.Insert("k", 1, codec.TTL[uint16]{}) }, throttr.ErrTTL},
		"SET's TTL": {func(b *throttr.Batch[uint16]) { b.Set("k", nil, codec.TTL[uint16]{Unit: codec.Hours}) }, throttr.ErrTTL},
		"change":    {func(b *throttr.Batch[uint16]) { b.Update("k", codec.Quota, 3, 1) }, nil},
		"attribute": {func(b *throttr.Batch[uint16]) { b.Update("k", 2, codec.Patch, 1) }, nil},
	} {
		var b throttr.Batch[uint16]
		good := b.Insert("good", 1, testkit.Minute)
		bad.add(&b)
		b.Purge("good")
		err := client.Do(t.Context(), &b)
		require.Error(t, err, name)
		require.ErrorContains(t, err, "request 1: ")
		if bad.err != nil {
			require.ErrorIs(t, err, bad.err, name)
		}
		_, err = good.OK()
		require.ErrorIs(t, err, throttr.ErrBatch, "it was not sent")
		require.ErrorContains(t, client.Do(t.Context(), &b), "request 1: ", "nor the second time")
		b.Reset()
		require.Zero(t, b.Len())
		b.Query("good")
		require.NoError(t, client.Do(t.Context(), &b), "after a Reset all is well")
	}
	require.Equal(t, 1, srv.Requests(codec.OpInsert), "the probe's")
}

func TestABatchOutOfTurnIsAnError(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	var b throttr.Batch[uint16]
	_, err := throttr.Reply[uint16]{}.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	q, g := b.Query("k"), b.Get("k")
	_, _, err = q.Counter()
	require.ErrorIs(t, err, throttr.ErrBatch)
	_, _, err = g.Buffer()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.NoError(t, client.Do(t.Context(), &b))
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err, "the answers stay")

	late := b.Purge("k")
	_, err = late.OK()
	require.ErrorIs(t, err, throttr.ErrBatch)
	require.ErrorIs(t, client.Do(t.Context(), &b), throttr.ErrBatch)
	_, _, err = q.Counter()
	require.NoError(t, err)
	require.Equal(t, 4, srv.Requests(codec.OpPurge), "the probe's")
}

func TestABatchMayFailInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, 2)
		client := f.connect(t, throttr.Config{}, f.names...)
		f.servers[f.names[0]].Disconnect()
		f.servers[f.names[0]].Refuse(true)
		synctest.Wait()
		var b throttr.Batch[uint16]
		replies := map[string]throttr.Reply[uint16]{}
		for i := range 50 {
			key := fmt.Sprint("user:", i)
			replies[key] = b.Insert(key, 1, testkit.Minute)
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.ErrorIs(t, err, mockserver.ErrRefused)
		require.False(t, throttr.SafeToRetry(err), "the other server has executed its part")
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, f.names[0], failed.Server)
		failures := 0
		for key, r := range replies {
			ok, err := r.OK()
			if f.home(key) == f.names[1] {
				require.NoError(t, err)
				require.True(t, ok)
				continue
			}
			failures++
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.True(t, throttr.SafeToRetry(err), "this part was not sent")
		}
		require.Greater(t, failures, 10)
		require.Less(t, failures, 40)
	})
}

func TestAfterAFailureTheRestOfABatchIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 10}))
		srv.Inject(mockserver.Fault{Op: codec.OpInsert, Skip: 15, Disconnect: true, Times: 1})
		var b throttr.Batch[uint16]
		var replies []throttr.Reply[uint16]
		for i := range 40 {
			replies = append(replies, b.Insert(fmt.Sprint(i), 1, testkit.Minute))
		}
		err := client.Do(t.Context(), &b)
		require.ErrorIs(t, err, throttr.ErrConnLost)
		require.False(t, throttr.SafeToRetry(err))
		for i, r := range replies {
			ok, err := r.OK()
			switch {
			case i < 10:
				require.NoError(t, err)
				require.True(t, ok)
			case i < 20: // in flight as the connection was lost
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.False(t, throttr.SafeToRetry(err))
			default:
				require.ErrorIs(t, err, throttr.ErrConnLost)
				require.True(t, throttr.SafeToRetry(err))
				_, ok := srv.Counter(fmt.Sprint(i))
				require.False(t, ok)
			}
		}
	})
}

func TestABatchOfLargeFramesArrives(t *testing.T) {
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{})
	var b throttr.Batch[uint16]
	var sets []throttr.Reply[uint16]
	var gets []throttr.BufferReply[uint16]
	for i := range 100 {
		key := fmt.Sprint(i)
		sets = append(sets, b.Set(key, bytes.Repeat([]byte{byte(i)}, 8000), testkit.Minute))
		gets = append(gets, b.Get(key))
	}
	require.NoError(t, client.Do(t.Context(), &b))
	for i := range sets {
		ok, err := sets[i].OK()
		require.NoError(t, err)
		require.True(t, ok)
		v, ok, err := gets[i].Buffer()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, bytes.Repeat([]byte{byte(i)}, 8000), v.Value)
	}
}

func TestABatchThatIsGivenUpTellsSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1, MaxInFlight: 2}))
		srv.Inject(mockserver.Fault{Delay: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var b throttr.Batch[uint16]
		var replies []throttr.Reply[uint16]
		for i := range 6 {
			replies = append(replies, b.Insert(fmt.Sprint(i), 1, testkit.Minute))
		}
		require.ErrorIs(t, client.Do(ctx, &b), context.DeadlineExceeded)
		for i, r := range replies {
			_, err := r.OK()
			if i < 2 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, i >= 4, throttr.SafeToRetry(err))
		}
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
	})
}
