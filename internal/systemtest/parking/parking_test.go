// Package parking_test has the tests of parked servers.
package parking_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

const always = throttr.ParkingAlways

// server starts a server whose records expire as on a real one.
func server(t testing.TB, size int, opts ...mockserver.Option) *mockserver.Server {
	t.Helper()
	return testkit.InMemory(t, append(opts, mockserver.WithRealCollector(), mockserver.WithValueSize(size))...)
}

func connect[T codec.Value](t testing.TB, srv *mockserver.Server, p throttr.Parking) *throttr.Client[T] {
	t.Helper()
	return testkit.Connect[T](t, srv, testkit.Over(srv, throttr.Config{Parking: p}))
}

// seconds returns a TTL.
func seconds[T codec.Value](n T) codec.TTL[T] {
	return codec.TTL[T]{Amount: n, Unit: codec.Seconds}
}

// insert creates a counter.
func insert[T codec.Value](t testing.TB, c *throttr.Client[T], key string, ttl codec.TTL[T]) {
	t.Helper()
	ok, err := c.Insert(t.Context(), key, 1, ttl)
	require.NoError(t, err)
	require.True(t, ok)
}

// litter leaves a record that is long past its TTL. Any run of the collector that finds it
// locks the server up.
func litter[T codec.Value](t testing.TB, c *throttr.Client[T]) {
	t.Helper()
	insert(t, c, "litter", seconds[T](1))
	time.Sleep(65 * time.Second) // the maintenance is due in 25 s
}

// several are keys of which some stand before "litter" in the server's table, so that their
// INSERTs set its timer.
var several = []string{"a", "b", "c", "d", "e", "f"}

// requireQuiet fails the test if the collector has run.
func requireQuiet(t testing.TB, srv *mockserver.Server) {
	t.Helper()
	require.False(t, srv.LockedUp())
	require.Zero(t, srv.Expired())
}

func TestNothingExpiresOnAParkedServer(t *testing.T) {
	testkit.ForEachSize(t, nothingExpires[uint8], nothingExpires[uint16], nothingExpires[uint32], nothingExpires[uint64])
}

func nothingExpires[T codec.Value](t *testing.T) {
	srv := server(t, codec.Size[T]())
	client := connect[T](t, srv, always)
	require.True(t, client.Stats().Servers[0].Parked)
	litter(t, client)
	ok, err := client.Set(t.Context(), "buffer", []byte("v"), seconds[T](1))
	require.NoError(t, err)
	require.True(t, ok)
	var b throttr.Batch[T]
	for i := range 600 { // more than fit one call
		b.Insert(fmt.Sprint("batch:", i), 1, seconds[T](1))
	}
	require.NoError(t, client.Do(t.Context(), &b))
	time.Sleep(time.Minute)
	requireQuiet(t, srv)
	require.Len(t, srv.Keys(), 1+1+1+600)
	counter, ok, err := client.Query(t.Context(), "batch:599")
	require.NoError(t, err)
	require.True(t, ok, "a record that is past its TTL can be read")
	require.Zero(t, counter.TTL.Amount)

	client.Close()
	time.Sleep(250 * time.Hour) // without a client
	requireQuiet(t, srv)
	connect[T](t, srv, throttr.ParkingNever)
	time.Sleep(testkit.Fewer(250 * time.Hour))
	requireQuiet(t, srv)
}

func TestARestartedServerIsParkedBeforeAnythingElse(t *testing.T) {
	for name, backend := range map[string]bool{"parked by this client": false, "parked by another": true} {
		testkit.Bubble(t, name, func(t *testing.T) {
			ops := make(chan codec.Op, 1000)
			srv := server(t, 1, mockserver.WithObserver(func(e mockserver.Exec) { ops <- e.Op }))
			client := connect[uint8](t, srv, always)
			if backend {
				client = connect[uint8](t, srv, throttr.ParkingAutomatic)
				client.Backend()
			}
			before := len(ops)
			require.NoError(t, srv.Restart(false))
			time.Sleep(time.Second)
			var all []codec.Op
			for len(ops) > 0 {
				all = append(all, <-ops)
			}
			require.GreaterOrEqual(t, len(all), before+11)
			if !backend {
				require.Equal(t, []codec.Op{
					codec.OpQuery, codec.OpUnsubscribe, codec.OpWhoAmI, codec.OpInsert, codec.OpUpdate, codec.OpUnsubscribe,
				}, all[before+5:before+11], "after the probe, though nobody asks for anything")
			}
			require.Contains(t, srv.Keys(), "")
			require.True(t, client.Stats().Servers[0].Parked)
			litter(t, client)
			requireQuiet(t, srv)
		})
	}
}

// The INSERT of a probe or a call sets the timer of the server, and the last connection ends before the UPDATE.
func TestAConnectionThatEndsInACallDoesNotEndParking(t *testing.T) {
	for _, direction := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		t.Run(direction.String(), func(t *testing.T) {
			for after := range 200 {
				synctest.Test(t, func(t *testing.T) {
					srv := server(t, 1)
					parker := connect[uint8](t, srv, always)
					litter(t, parker)
					parker.Close()
					srv.Cut(mockserver.Cut{Direction: direction, After: after, Times: 1})
					client, err := throttr.Connect[uint8](t.Context(), testkit.Over(srv, throttr.Config{MaxRetries: -1}))
					if err == nil { // otherwise the probe was cut
						defer client.Close()
						for _, key := range several {
							if _, err = client.Insert(t.Context(), key, 1, seconds[uint8](2)); err != nil {
								break // nobody asks for anything more
							}
						}
					}
					time.Sleep(time.Hour)
					requireQuiet(t, srv)
				})
			}
		})
	}
}

func TestAServerWhoseRecordIsRemovedIsParkedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t, 1)
		client := connect[uint8](t, srv, always)
		litter(t, client)
		ok, err := client.Purge(t.Context(), "")
		require.NoError(t, err)
		require.True(t, ok)
		for _, key := range several {
			insert(t, client, key, seconds[uint8](2))
		}
		synctest.Wait()
		require.Contains(t, srv.Keys(), "")
		require.True(t, client.Stats().Servers[0].Parked)
		time.Sleep(10 * time.Second) // the maintenance has not noticed yet
		requireQuiet(t, srv)
		client.Purge(t.Context(), "")
		time.Sleep(time.Minute) // the maintenance notices
		require.Contains(t, srv.Keys(), "")

		client.Close()
		_, err = throttr.Connect[uint64](t.Context(), testkit.Over(srv, throttr.Config{Parking: always}))
		require.ErrorIs(t, err, throttr.ErrValueSizeMismatch)
		time.Sleep(20 * time.Second) // its probe has set the timer
		requireQuiet(t, srv)
	})
}
