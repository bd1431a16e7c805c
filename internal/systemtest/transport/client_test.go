package transport_test

import (
	"cmp"
	"crypto/tls"
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

// Programs are restarted one after the other, so that for a while some know of three servers
// and some of four. A quarter of the keys moves. Until all programs are restarted, both groups
// allow such a key its whole limit. Other keys are not affected.
func TestKeyThatMovesToAnAddedServerHasTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, limit = 1000, 5
		servers := testkit.Several(t, 4)
		before := testkit.NewRateLimit(testkit.Client[uint16](t, servers[:3].Over(throttr.Config{})).Backend())
		after := testkit.NewRateLimit(testkit.Client[uint16](t, servers.Over(throttr.Config{})).Backend())
		moved := 0
		for i := range keys {
			key := fmt.Sprintf("user:%d", i)
			allowed := testkit.Hits(t, before, 2*limit, key, time.Minute, limit)
			allowed += testkit.Hits(t, after, 2*limit, key, time.Minute, limit)
			switch allowed {
			case limit:
			case 2 * limit:
				moved++
			default:
				t.Errorf("%s: %d hits were allowed", key, allowed)
			}
		}
		t.Logf("%d of %d keys move", moved, keys)
		require.InDelta(t, keys/4, moved, keys/20)

		time.Sleep(time.Minute)
		for i := range keys { // when all programs know of the fourth server
			key := fmt.Sprintf("user:%d", i)
			require.Equal(t, limit, testkit.Hits(t, after, 2*limit, key, time.Minute, limit), key)
		}
	})
}

func TestClientPresentsItsCertificate(t *testing.T) {
	end := time.Now().Add(time.Hour)
	mine, clients := testkit.Certificate(t, "throttr", end)
	srv := mockserver.RunT(t)
	for _, name := range []string{"", "other.example"} { // that of the address, and one of the caller
		cert, roots := testkit.Certificate(t, cmp.Or(name, "localhost"), end)
		addr := testkit.TLS(t, srv.Addr(), &tls.Config{
			Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
		})
		conf := &tls.Config{ServerName: name, RootCAs: roots, Certificates: []tls.Certificate{mine}}
		client := testkit.Client[uint16](t, throttr.Config{Servers: []string{addr}, TLS: conf})
		require.Equal(t, name, conf.ServerName, "the caller's configuration is not changed")
		require.Equal(t, 3, testkit.Hits(t, testkit.NewRateLimit(client.Backend()), 5, "k"+name, time.Hour, 3))
		sub := testkit.Subscribe(t, client, "c") // on a connection of its own
		_, err := client.Publish(t.Context(), "c", []byte("hello"))
		require.NoError(t, err)
		require.Equal(t, "hello", string(testkit.Next(t, sub).Payload))
		client.Close()
		requireNoGoroutines(t)
	}
}

func TestReadsAreRepeatedMaxRetriesTimes(t *testing.T) {
	for field, sent := range map[int]int{-1: 1, 0: 3, 1: 2, 5: 6} {
		synctest.Test(t, func(t *testing.T) {
			srv, client := testkit.Start[uint16](t, throttr.Config{MaxRetries: field})
			srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Disconnect: true})
			_, _, err := client.Query(t.Context(), "k")
			require.ErrorIs(t, err, throttr.ErrConnLost)
			require.False(t, testkit.SafeToRetry(err))
			require.Equal(t, sent, srv.Requests(codec.OpQuery)-int(client.Stats().Servers[0].Dials), "besides those of the probes")
			require.EqualValues(t, sent-1, client.Stats().Servers[0].Retries)
		})
	}
}

// requireNoGoroutines fails the test if goroutines of a client outlive it. A bubble of
// testing/synctest does not need it: the bubble waits for all its goroutines.
func requireNoGoroutines(t testing.TB) {
	t.Helper()
	for start := time.Now(); len(testkit.Stacks()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatalf("goroutines are left: %s", testkit.Stacks())
		}
	}
}
