package transport_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/testkit"
)

// records returns a response to LIST with fragments of the given sizes.
func records(sizes ...int) codec.ListResponse[uint16] {
	var r codec.ListResponse[uint16]
	for i, n := range sizes {
		fragment := []codec.ListEntry[uint16]{}
		for j := range n {
			fragment = append(fragment, codec.ListEntry[uint16]{
				Key: fmt.Appendf(nil, "%d.%d", i, j), Unit: codec.Seconds, Expires: uint64(time.Hour), Bytes: 2, Buffer: j == 1,
			})
		}
		r.Fragments = append(r.Fragments, fragment)
	}
	return r
}

func TestListYieldsTheEntriesOfAllFragments(t *testing.T) {
	response := records(3, 0, 500)
	client := testkit.Responding[uint16](testkit.Encode(t, response)).Client(t, throttr.Config{})
	got, err := testkit.Collect(t, client.List(t.Context()))
	require.NoError(t, err)
	var want []inspect.Record
	for _, fragment := range response.Fragments {
		for _, e := range fragment {
			entry := inspect.Record{
				Server: throttr.DefaultServer, Key: string(e.Key), Kind: inspect.Counter,
				Unit: codec.Seconds, ExpiresAt: time.Unix(3600, 0).UTC(), BytesUsed: 2,
			}
			if e.Buffer {
				entry.Kind = inspect.Buffer
			}
			want = append(want, entry)
		}
	}
	require.Equal(t, want, got)
}

// A response with an unknown status is an error of each method that decodes one.
func TestInvalidStatusIsAProtocolError(t *testing.T) {
	client := testkit.Responding[uint16]([]byte{7}).Client(t, testkit.WithoutRetries(throttr.Config{}))
	ctx := t.Context()
	for op, run := range map[codec.Op]func() error{
		codec.OpStat:       func() error { _, _, err := client.Stat(ctx, "k"); return err },
		codec.OpInfo:       func() error { _, err := client.Info(ctx); return err },
		codec.OpWhoAmI:     func() error { _, err := client.WhoAmI(ctx); return err },
		codec.OpPublish:    func() error { _, err := client.Publish(ctx, "c", nil); return err },
		codec.OpConnection: func() error { _, _, err := client.Connection(ctx, throttr.DefaultServer, codec.ConnID{}); return err },
		codec.OpList:       func() error { return lastError(t, client.List(ctx)) },
	} {
		t.Run(op.String(), func(t *testing.T) {
			err := run()
			require.ErrorIs(t, err, throttr.ErrProtocol)
			var failed *throttr.RequestError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, op, failed.Op)
			require.True(t, failed.Sent)
		})
	}
}

func TestLeavingTheLoopClosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := testkit.Responding[uint16](testkit.Encode(t, records(1000, 1000)))
		client := f.Client(t, throttr.Config{})
		for range client.List(t.Context()) {
			require.Equal(t, 2, testkit.ServerStats(client).Conns)
			break
		}
		synctest.Wait()
		open, _ := f.Conns()
		require.Equal(t, 1, open)
		require.Equal(t, 1, testkit.ServerStats(client).Conns)

		require.Panics(t, func() {
			for range client.List(t.Context()) {
				panic("out of the loop")
			}
		})
		synctest.Wait()
		open, _ = f.Conns()
		require.Equal(t, 1, open)
	})
}

// fakes is a Dial for several servers: those whose names begin with "bad" send an invalid
// status, the others two records.
func fakes(t *testing.T) func(ctx context.Context, network, address string) (net.Conn, error) {
	good, bad := testkit.Responding[uint16](testkit.Encode(t, records(2))), testkit.Responding[uint16]([]byte{7})
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "bad") {
			return bad.Dial(ctx, network, address)
		}
		return good.Dial(ctx, network, address)
	}
}

func TestServerThatFailsDoesNotHideTheOthers(t *testing.T) {
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
		Servers: []string{"good:1", "bad:1", "good:2", "bad:2"}, Dial: fakes(t),
	})
	require.NoError(t, err)
	defer client.Close()
	got, err := testkit.Collect(t, client.List(t.Context()))
	require.ErrorIs(t, err, throttr.ErrProtocol)
	var servers []string
	for _, e := range got {
		servers = append(servers, e.Server)
	}
	require.Equal(t, []string{"good:1", "good:1", "good:2", "good:2"}, servers)
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 2)
	for i, err := range joined.Unwrap() {
		var failed *throttr.RequestError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []string{"bad:1", "bad:2"}[i], failed.Server)
	}
}

func TestEndedContextEndsTheIteration(t *testing.T) {
	client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
		Servers: []string{"good:1", "good:2", "good:3"}, Dial: fakes(t),
	})
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var servers []string
	var errs []error
	for e, err := range client.List(ctx) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		servers = append(servers, e.Server)
		if len(servers) == 2 {
			cancel()
		}
	}
	require.Equal(t, []string{"good:1", "good:1"}, servers)
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0], context.Canceled)
	require.True(t, testkit.SafeToRetry(errs[0]))
	failed, ok := errs[0].(*throttr.RequestError)
	require.True(t, ok, "the third server is not asked: %v", errs[0])
	require.Equal(t, "good:2", failed.Server)
}
