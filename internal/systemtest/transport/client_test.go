package transport_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"strings"
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

// A client under load has at most two goroutines for each connection, one for each server, one
// for the subscriptions of each server, two for each server of a backend and two more while that is
// swept or kept parked, and one for each key with callers. It has none for a call.
func TestGoroutinesOfAClientAreBounded(t *testing.T) {
	const conns, keys, callers = 3, 4, 100
	srv := mockserver.RunT(t)
	client := testkit.Connect[uint16](t, srv, throttr.Config{MaxConns: conns, MaxInFlight: 8, StallTimeout: time.Minute})
	limiter := testkit.NewRateLimit(client.Backend())
	testkit.Subscribe(t, client, "c")
	remove := srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Delay: time.Hour})
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	query := func() { client.Query(ctx, "k") }
	for i := range callers {
		all.Go(query)
		all.Go(func() { limiter.Hit(ctx, fmt.Sprint(i%keys), time.Minute, 1000) })
	}
	require.Eventually(t, func() bool { // a call opens another connection if all are busy
		all.Go(query)
		return client.Stats().Servers[0].Conns == conns+1
	}, 5*time.Second, time.Millisecond)
	own := 0
	for _, s := range testkit.Stacks() {
		if !strings.Contains(s, "transport_test.") { // a caller
			own++
		}
	}
	// The subscription has a connection of its own. A connection may be being made, and a listing under way.
	const most = 2*(conns+1) + 1 + 1 + 2 + 2 + keys + 2
	require.LessOrEqual(t, own, most, "with %d callers", 2*callers)
	cancel()
	all.Wait()
	client.Close()
	requireNoGoroutines(t)
}

// A connection that is too old is replaced, and stays open until its responses have come. Here
// they are late. A server never has more than twice Config.MaxConns: calls wait for room.
func TestReplacedConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := testkit.InMemory(t)
		client := testkit.Connect[uint16](t, srv, testkit.Over(srv, throttr.Config{
			MaxConns: 1, MaxConnAge: time.Second, HealthInterval: 100 * time.Millisecond, StallTimeout: time.Hour,
		}))
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Key: "k", Delay: 10 * time.Second})
		ended := testkit.Together(t, 30, func(i int) error {
			time.Sleep(time.Duration(i) * time.Second)
			_, _, err := client.Query(t.Context(), "k")
			return err
		})
		most := 0
		for range 30 {
			time.Sleep(time.Second)
			most = max(most, srv.Conns())
		}
		ended()
		require.Equal(t, 2, most)
	})
}

// Config.MaxQueued bounds requests that wait to be sent, which ServerStats.Waiting counts, and callers that wait for a
// connection, or for a listing to end, which ServerStats.Acquiring counts.
func TestTooManyThatWaitAreRejected(t *testing.T) {
	const callers, maxQueued = 20, 5
	type client = throttr.Client[uint16]
	query := func(ctx context.Context, c *client, _ string) error {
		_, _, err := c.Query(ctx, "k")
		return err
	}
	for name, test := range map[string]struct {
		cfg   throttr.Config
		begin func(srv *mockserver.Server)
		call  func(ctx context.Context, c *client, key string) error
		want  []int // in flight, waiting, acquiring
		under int   // calls that are under way, besides those that wait
		ends  error // with the deadline
	}{
		"requests": {
			throttr.Config{MaxConns: 1, MaxInFlight: 3},
			func(srv *mockserver.Server) { srv.Inject(mockserver.Fault{Op: codec.OpInsert, Delay: time.Second}) },
			func(ctx context.Context, c *client, key string) error {
				_, err := c.Insert(ctx, key, 1, testkit.Minute)
				return err
			}, []int{3, maxQueued, 0}, 3, nil,
		},
		"callers without a connection": {
			throttr.Config{},
			func(srv *mockserver.Server) { srv.HoldAccept(true); srv.Disconnect() },
			query, []int{0, 0, maxQueued}, 0, context.DeadlineExceeded,
		},
		"listings": {
			throttr.Config{MaxConns: 2, StallTimeout: time.Hour},
			func(srv *mockserver.Server) { srv.Inject(mockserver.Fault{Op: codec.OpConnections, Drop: true}) },
			func(ctx context.Context, c *client, _ string) error {
				_, err := testkit.Collect(t, c.Connections(ctx))
				return err
			}, []int{0, 0, maxQueued}, 2, context.DeadlineExceeded,
		},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			srv := testkit.InMemory(t)
			test.cfg.MaxQueued = maxQueued
			client := testkit.Connect[uint16](t, srv, testkit.Over(srv, test.cfg))
			inserts := srv.Requests(codec.OpInsert)
			test.begin(srv)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			errs := make([]error, callers)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { errs[i] = test.call(ctx, client, fmt.Sprint(i)) })
				synctest.Wait()
			}
			s := client.Stats().Servers[0]
			require.Equal(t, test.want, []int{s.InFlight, s.Waiting, s.Acquiring})
			all.Wait()
			rejected := 0
			for _, err := range errs {
				if errors.Is(err, throttr.ErrOverloaded) {
					require.True(t, testkit.SafeToRetry(err))
					rejected++
				} else {
					require.ErrorIs(t, err, test.ends)
				}
			}
			require.Equal(t, callers-maxQueued-test.under, rejected)
			s = client.Stats().Servers[0]
			require.Equal(t, []int{0, 0, 0}, []int{s.InFlight, s.Waiting, s.Acquiring})
			if name == "requests" {
				require.Equal(t, callers-rejected, srv.Requests(codec.OpInsert)-inserts)
			}
			require.NotErrorIs(t, test.call(ctx, client, "again"), throttr.ErrOverloaded, "there is room again")
		})
	}
}

// minMaxResponse is the smallest Config.MaxResponse.
const minMaxResponse = 24 << 10

// responding returns a client of a server that responds to one kind of request with response, and counts the bytes that
// the client reads.
func responding(t *testing.T, op codec.Op, response []byte, cfg throttr.Config) (*throttr.Client[uint16], *testkit.Traffic) {
	srv := testkit.InMemory(t)
	traffic := new(testkit.Traffic)
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		return traffic.Count(nc), err
	}
	client := testkit.Connect[uint16](t, srv, cfg)
	traffic[mockserver.ToClient].Store(0)
	srv.Inject(mockserver.Fault{Op: op, Replace: response})
	return client, traffic
}

// lastError returns the error that an iteration ends with.
func lastError[E any](t *testing.T, seq iter.Seq2[E, error]) error {
	_, err := testkit.Collect(t, seq)
	return err
}

// A response, of a kind that the protocol does not bound, announces as many entries as there can be and does not end.
// The client closes the connection, and has read at most two buffers more than Config.MaxResponse.
func TestEndlessResponseIsRejected(t *testing.T) {
	cfg := throttr.Config{MaxResponse: minMaxResponse, MaxRetries: -1} // the bound is that of a connection
	for op, call := range map[codec.Op]func(c *throttr.Client[uint16]) error{
		codec.OpList:        func(c *throttr.Client[uint16]) error { return lastError(t, c.List(t.Context())) },
		codec.OpStats:       func(c *throttr.Client[uint16]) error { return lastError(t, c.KeyStats(t.Context())) },
		codec.OpConnections: func(c *throttr.Client[uint16]) error { return lastError(t, c.Connections(t.Context())) },
		codec.OpChannels:    func(c *throttr.Client[uint16]) error { return lastError(t, c.Channels(t.Context())) },
		codec.OpChannel: func(c *throttr.Client[uint16]) error {
			_, _, err := c.Channel(t.Context(), "c")
			return err
		},
	} {
		t.Run(op.String(), func(t *testing.T) {
			beginning := "\x01" + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00\x00", 2) + strings.Repeat("\xff", 8)
			if op == codec.OpChannel {
				beginning = "\x01" + strings.Repeat("\xff", 8)
			}
			client, traffic := responding(t, op, append([]byte(beginning), make([]byte, 1<<20)...), cfg)
			require.ErrorIs(t, call(client), throttr.ErrProtocol)
			client.Close()
			require.LessOrEqual(t, traffic[mockserver.ToClient].Load(), int64(minMaxResponse+2*16<<10+1<<10))
		})
	}
}

// The smallest Config.MaxResponse is enough for each fragment that a server sends, and the longest response to CHANNEL
// that fits a larger one is accepted.
func TestResponseAsLongAsAllowedIsAccepted(t *testing.T) {
	longest := make([]codec.ChannelsEntry, 2048/25) // that a server puts into a fragment: it does not count names
	for i := range longest {
		longest[i].Name = make([]byte, codec.MaxKey)
	}
	response := testkit.Encode(t, codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{longest}})
	client, _ := responding(t, codec.OpChannels, response, throttr.Config{MaxResponse: minMaxResponse})
	channels, err := testkit.Collect(t, client.Channels(t.Context()))
	require.NoError(t, err)
	require.Len(t, channels, len(longest))

	const most = 25 << 10 // more than one read, and less than two
	fit := make([]codec.Subscriber, (most-9)/40)
	response = testkit.Encode(t, codec.ChannelResponse{Found: true, Subscribers: fit})
	client, _ = responding(t, codec.OpChannel, response, throttr.Config{MaxResponse: most})
	subscribers, ok, err := client.Channel(t.Context(), "c")
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, subscribers, len(fit))
}

// step is a part of the conversation that is cut: requests on one key.
type step struct {
	op  codec.Op // of the request that may change something, if there is one
	key string
	run func(ctx context.Context, c *throttr.Client[uint16]) (right bool, err error)
}

// conversation has a step for each kind of request, and a batch.
var conversation = []step{
	{codec.OpInsert, "insert", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Insert(ctx, "insert", 1, testkit.Minute)
	}},
	{codec.OpQuery, "query", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		r, ok, err := c.Query(ctx, "query")
		return ok && r.Quota == 7, err
	}},
	{codec.OpUpdate, "update", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Update(ctx, "update", codec.Quota, codec.Increase, 3)
	}},
	{codec.OpSet, "set", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Set(ctx, "set", []byte("some value"), testkit.Minute)
	}},
	{codec.OpGet, "get", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		r, ok, err := c.Get(ctx, "get")
		return ok && len(r.Value) == 0, err // it is a counter
	}},
	{codec.OpUpdate, "batch", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		var b throttr.Batch[uint16]
		update, query := b.Update("batch", codec.Quota, codec.Increase, 1), b.Query("batch")
		if err := c.Do(ctx, &b); err != nil {
			return false, err
		}
		updated, _ := update.OK()
		r, found, _ := query.Counter()
		return updated && found && r.Quota == 8, nil
	}},
	{codec.OpPurge, "purge", func(ctx context.Context, c *throttr.Client[uint16]) (bool, error) {
		return c.Purge(ctx, "purge")
	}},
}

// result is the outcome of a step.
type result struct {
	right bool // the response, if there is one, is the only one that can be right
	err   error
}

// cutTest is a conversation with a server whose connection is cut.
type cutTest struct {
	*testing.T
	results []result // of the steps

	mu       sync.Mutex     // guards what follows
	executed map[string]int // how often the server executed an op on a key
}

// converse runs the steps of the conversation, one after the other or in parallel.
func (c *cutTest) converse(client *throttr.Client[uint16], parallel bool) {
	c.results = make([]result, len(conversation))
	var all sync.WaitGroup
	for i, s := range conversation {
		all.Go(func() { c.results[i].right, c.results[i].err = s.run(c.Context(), client) })
		if !parallel {
			all.Wait()
		}
	}
	all.Wait()
}

// check compares the results with what the server executed, and returns how many steps
// failed.
func (c *cutTest) check(what string) (failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range conversation {
		r := c.results[i]
		n := c.executed[fmt.Sprint(s.op, s.key)]
		reads := s.op == codec.OpQuery || s.op == codec.OpGet
		if !reads {
			require.LessOrEqual(c, n, 1, "%s: %v %s was executed again", what, s.op, s.key)
		}
		if r.err == nil {
			require.True(c, r.right, "%s: %v %s", what, s.op, s.key)
			require.Positive(c, n)
			continue
		}
		failures++
		require.ErrorIs(c, r.err, throttr.ErrConnLost, what)
		require.False(c, reads, "%s: the client repeats a read", what)
		require.False(c, testkit.SafeToRetry(r.err), "%s: the client repeats a request that was not sent", what)
	}
	return failures
}

// Each byte of the conversation, in either direction, is once the last before the connection
// ends. A request fails only if it may have been executed, and no request is executed twice.
func TestConnectionCutAtAnyByte(t *testing.T) {
	for _, direction := range []mockserver.Direction{mockserver.FromClient, mockserver.ToClient} {
		for _, parallel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/parallel=%v", direction, parallel), func(t *testing.T) {
				failures, total := 0, 1
				for after := 0; after <= total; after++ {
					synctest.Test(t, func(t *testing.T) {
						n, failed := testCut(t, mockserver.Cut{Direction: direction, After: after, Times: 1}, parallel)
						total = max(total, n)
						failures += failed
					})
				}
				require.Greater(t, total, 20)
				require.Greater(t, failures, 10, "requests that may not be repeated")
			})
		}
	}
}

// testCut returns how many bytes went in the direction of the cut, and how many steps failed.
func testCut(t *testing.T, cut mockserver.Cut, parallel bool) (total, failures int) {
	c := &cutTest{T: t, executed: map[string]int{}}
	srv := mockserver.RunT(t, mockserver.WithAddr("memory", "cut:1"), mockserver.WithObserver(func(e mockserver.Exec) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.executed[fmt.Sprint(e.Op, e.Key)]++
	}))
	for _, key := range []string{"query", "update", "get", "batch", "purge"} {
		srv.Set(key, 7, time.Minute)
	}
	var traffic testkit.Traffic
	cfg := throttr.Config{Servers: []string{srv.Addr()}, MaxConns: 1}
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		return traffic.Count(nc), err
	}
	srv.Cut(cut)
	client, err := throttr.Connect[uint16](t.Context(), cfg)
	if err != nil { // the probe was cut
		require.ErrorIs(t, err, throttr.ErrConnect)
		client, err = throttr.Connect[uint16](t.Context(), cfg)
	}
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	c.converse(client, parallel)
	what := fmt.Sprintf("cut %v after %d", cut.Direction, cut.After)
	failures = c.check(what)
	_, ok, err := client.Query(t.Context(), "query")
	require.NoError(t, err, what)
	require.True(t, ok, what)
	require.NoError(t, client.Close())
	synctest.Wait()
	require.Zero(t, srv.Conns())
	return int(traffic[cut.Direction].Load()), failures
}
