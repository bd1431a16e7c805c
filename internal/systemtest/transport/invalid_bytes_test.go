package transport_test

import (
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

func TestInvalidBytesEndTheConnection(t *testing.T) {
	for name, fault := range map[string]mockserver.Fault{
		"an unknown status":      {Replace: []byte{0xff}},
		"an op code":             {Replace: []byte{byte(codec.OpQuery)}},
		"text":                   {Replace: []byte("ERR unknown command")},
		"an endless event":       {Replace: []byte{0x19, 0, 0xff, 0xff}},
		"a response twice":       {Duplicate: true},
		"a response and garbage": {Replace: []byte{1, 0xff}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := testkit.InMemory(t)
				client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{MaxConns: 1}))
				fault.Op, fault.Times = codec.OpPurge, 1
				srv.Inject(fault)
				// The second request is in flight when the bytes come. It gets no response.
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
						require.False(t, testkit.SafeToRetry(err))
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

func TestUnexpectedByteEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{}))
		srv.Inject(mockserver.Fault{Op: codec.OpPurge, Duplicate: true, Times: 1})
		_, err := client.Purge(t.Context(), "k")
		require.ErrorIs(t, err, throttr.ErrProtocol, "either byte could be the response")
		require.False(t, testkit.SafeToRetry(err))
		synctest.Wait()
		s := testkit.ServerStats(client)
		require.EqualValues(t, 1, s.Failures)
		require.Zero(t, s.Conns)
		_, _, err = client.Query(t.Context(), "k")
		require.NoError(t, err, "on a new connection")
	})
}
