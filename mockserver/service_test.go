package mockserver_test

import (
	"encoding"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func TestServiceTimeIsSpentOnOneRequestAfterTheOther(t *testing.T) {
	const each, n = 100 * time.Microsecond, 100
	srv := mockserver.RunT(t, mockserver.WithServiceTime(each))
	start := time.Now()
	var clients sync.WaitGroup
	for range 3 {
		conn := dialReal(t, srv)
		clients.Go(func() {
			for range 2 {
				responses := make([]byte, n)
				if _, err := conn.Write(flood(t, n)); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(conn, responses); err != nil || string(responses) != strings.Repeat("\x00", n) {
					t.Errorf("%x %v", responses, err)
				}
			}
		})
	}
	clients.Wait()
	require.GreaterOrEqual(t, time.Since(start), 3*2*n*each)
	require.Equal(t, 3*2*n*each, srv.Busy())
}

// In a bubble the clock stands for the server's thread: time passes only while it is busy.
func TestServiceTimeInMemoryPassesInABubble(t *testing.T) {
	const each, n = time.Microsecond, 100
	synctest.Test(t, func(t *testing.T) {
		srv := mockserver.RunT(t, mockserver.WithAddr("memory", ""), mockserver.WithServiceTime(each))
		start := time.Now()
		var clients sync.WaitGroup
		for range 3 {
			conn, err := srv.Dial(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			clients.Go(func() {
				if got := askReal(t, conn, 2, query("k"), query("k")); got != "0000" {
					t.Error(got)
				}
				began := time.Since(start)
				go conn.Write(flood(t, n))
				if _, err := io.ReadFull(conn, make([]byte, n)); err != nil {
					t.Error(err)
				}
				if took := time.Since(start) - began; took < n*each {
					t.Errorf("%d requests took %v", n, took)
				}
			})
		}
		clients.Wait()
		require.Equal(t, 3*(2+n)*each, time.Since(start), "one after the other")
		require.Equal(t, 3*(2+n)*each, srv.Busy())
	})
}

func TestCreationSlowsDown(t *testing.T) {
	set := uint16.Set{Key: []byte("b"), Value: []byte("v"), TTL: uint16.TTL{Amount: 9, Unit: codec.Hours}}
	bubble(t, func(t *testing.T, srv *mockserver.Server) {
		w := connect(t, srv)
		cost := func(requests ...encoding.BinaryAppender) time.Duration {
			before := srv.Busy()
			w.send(frames(t, requests...))
			time.Sleep(time.Second)
			w.received()
			return srv.Busy() - before
		}
		const one, fresh = 10 * time.Microsecond, 13 * time.Microsecond
		require.Equal(t, fresh, cost(insert("k", 1, 9, codec.Hours)))
		slower := cost(insert("k", 1, 9, codec.Hours))
		require.Equal(t, fresh+32*time.Microsecond/20_000, slower, "it fails, and takes as long as one that does not")
		require.Equal(t, slower, cost(insert("k", 1, 9, codec.Hours)), "what fails makes no record")
		require.Equal(t, slower, cost(set))
		require.Greater(t, cost(set), slower)
		require.Equal(t, one, cost(query("k")))
		require.NoError(t, srv.Restart(true))
		w = connect(t, srv)
		require.Equal(t, fresh, cost(insert("k", 1, 9, codec.Hours)), "a restarted server is new")
	}, virtual, mockserver.WithRealServiceTime())
	_, err := mockserver.Start(mockserver.WithServiceTime(time.Millisecond + 1))
	require.ErrorContains(t, err, "service time is 0 to 1ms, not 1.000001ms")
}
