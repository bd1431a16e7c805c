package pubsub_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestEventsDisturbNoRequest(t *testing.T) {
	t.Run("uint8", testEventsDisturbNoRequest[uint8])
	t.Run("uint16", testEventsDisturbNoRequest[uint16])
	t.Run("uint32", testEventsDisturbNoRequest[uint32])
	t.Run("uint64", testEventsDisturbNoRequest[uint64])
}

func testEventsDisturbNoRequest[T codec.Value](t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t, mockserver.WithValueSize(codec.Size[T]()))
		client := testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1}))
		events := uint64(0)
		publish := func(channel string, payload []byte) {
			require.Equal(t, 1, srv.Publish(channel, payload))
			events++
		}
		publish("*", nil) // before any request
		synctest.Wait()
		require.Equal(t, events, testkit.ServerStats(client).Events)

		const callers = 200
		for i := range callers {
			srv.Set(fmt.Sprint(i), uint64(i), time.Minute)
		}
		srv.Inject(mockserver.Fault{Delay: time.Millisecond})
		largest := bytes.Repeat([]byte{1}, min(7000, int(uint64(^T(0))&(1<<20-1))))
		for _, split := range []int{0, 1, 5} {
			srv.Split(split)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					c, ok, err := client.Query(t.Context(), fmt.Sprint(i))
					if err != nil || !ok || c.Quota != T(i) {
						t.Errorf("%d: %v %v %v", i, c, ok, err)
					}
				})
				if i%20 == 0 {
					publish("", []byte{0x19, 0x19, 0, 1})
					synctest.Wait()
					publish("a channel", largest)
				}
			}
			all.Wait()
			publish("*", []byte("between requests"))
		}
		_, _, err := client.Query(t.Context(), "0")
		require.NoError(t, err)
		s := testkit.ServerStats(client)
		require.Equal(t, events, s.Events)
		require.EqualValues(t, 1, s.Dials)
		require.Zero(t, s.Failures)
	})
}

// talkative has bytes come before everything that the server sends.
type talkative struct {
	net.Conn
	first []byte
	limit int // of a read
}

func (c *talkative) Read(p []byte) (int, error) {
	if c.limit > 0 {
		p = p[:min(c.limit, len(p))]
	}
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func TestEventsMayComeDuringTheProbe(t *testing.T) {
	events := []byte{}
	for _, e := range []codec.Event[uint16]{
		{Channel: []byte("*"), Payload: []byte{0, 1, 0, 0, 0}},
		{Payload: bytes.Repeat([]byte{1}, 8000)}, {Channel: []byte("c"), Payload: bytes.Repeat([]byte{1}, 8000)},
		{Payload: bytes.Repeat([]byte{0x19}, 8000)},
	} {
		events, _ = e.AppendBinary(events)
	}
	for _, limit := range []int{0, 1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			srv.Set("k", 5, time.Minute)
			cfg := throttr.Config{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				nc, err := srv.Dial(ctx)
				return &talkative{nc, events, limit}, err
			}}
			client := testkit.Connect[uint16](t, srv, cfg)
			c, ok, err := client.Query(t.Context(), "k")
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 5, c.Quota)
			require.EqualValues(t, 4, testkit.ServerStats(client).Events)
		})
	}
}

func TestEventsBetweenTheAnswersToTheProbe(t *testing.T) {
	for _, split := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithSplit(split))
			event, err := codec.Event[uint16]{Channel: []byte("*"), Payload: []byte("x")}.AppendBinary(nil)
			require.NoError(t, err)
			defer srv.Inject(mockserver.Fault{Op: codec.OpInsert, Replace: append([]byte{1}, event...), Times: 1})()
			// The uint16 key is the second of the four.
			defer srv.Inject(mockserver.Fault{Op: codec.OpPurge, Skip: 1, Replace: append(bytes.Clone(event), 1), Times: 1})()
			// Behind the last answer: what the connection finds first.
			defer srv.Inject(mockserver.Fault{Op: codec.OpPurge, Skip: 2, Replace: append([]byte{0}, event...), Times: 1})()
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
			_, ok, err := client.Query(t.Context(), "k")
			require.NoError(t, err)
			require.False(t, ok)
			require.EqualValues(t, 3, testkit.ServerStats(client).Events)
		})
	}
}

func TestAProbeThatIsNotAnsweredAsAServerWouldFails(t *testing.T) {
	for _, answer := range [][]byte{{0}, {2}, []byte("HTTP/1.1 400 Bad Request\r\n"), {0x19, 0, 0xff, 0xff}} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t)
			srv.Inject(mockserver.Fault{Op: codec.OpInsert, Replace: answer})
			cfg := testkit.Over(srv, throttr.Config{Servers: []string{srv.Addr()}})
			_, err := throttr.Connect[uint16](t.Context(), cfg)
			require.ErrorIs(t, err, throttr.ErrConnect)
			require.ErrorIs(t, err, throttr.ErrProtocol)
			synctest.Wait()
			require.Zero(t, srv.Conns())
		})
	}
}

func TestBytesThatCannotBeAnAnswerEndTheConnection(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"an unknown status":     {Replace: []byte{0xff}},
		"an op code":            {Replace: []byte{byte(codec.OpQuery)}},
		"text":                  {Replace: []byte("ERR unknown command")},
		"an endless event":      {Replace: []byte{0x19, 0, 0xff, 0xff}},
		"an answer twice":       {Duplicate: true},
		"an answer and garbage": {Replace: []byte{1, 0xff}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1}))
				fault.Op, fault.Times = codec.OpPurge, 1
				srv.Inject(fault)
				// The second is in flight as the bytes come, and can have no answer.
				var all sync.WaitGroup
				var errs [2]error
				for i := range errs {
					all.Go(func() {
						if i == 1 {
							srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: time.Second, Times: 1})
							_, errs[i] = client.Insert(t.Context(), "i", 1, testkit.Minute)
							return
						}
						_, errs[i] = client.Purge(t.Context(), "p")
					})
					synctest.Wait()
				}
				all.Wait()
				failed := 0
				for _, err := range errs {
					if err != nil {
						require.ErrorIs(t, err, throttr.ErrProtocol)
						require.False(t, throttr.SafeToRetry(err))
						failed++
					}
				}
				if !fault.Duplicate && fault.Replace[0] != 1 {
					require.Error(t, errs[0])
				}
				_, ok, err := client.Query(t.Context(), "k")
				require.NoError(t, err)
				require.False(t, ok)
				require.EqualValues(t, 2, testkit.ServerStats(client).Dials)
				require.EqualValues(t, 1, testkit.ServerStats(client).Failures)
			})
		})
	}
}

func TestAByteThatNobodyAskedForEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Duplicate: true, Times: 1})
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrProtocol, "which of the two is the answer?")
		require.False(t, throttr.SafeToRetry(err))
		synctest.Wait()
		s := testkit.ServerStats(client)
		require.EqualValues(t, 1, s.Failures)
		require.Zero(t, s.Conns)
		_, _, err = client.Query(t.Context(), "k")
		require.NoError(t, err, "on a new connection")
	})
}
