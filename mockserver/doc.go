// Package mockserver is a Throttr server for tests, inside the process of the test. It
// implements the whole protocol byte for byte as a real server does, with its hazards,
// injects faults on demand, and has a clock that tests can advance.
//
//	func TestLimits(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := mockserver.RunT(t, mockserver.WithAddr("memory", "mock:1"))
//			client, err := throttr.Connect[uint16](t.Context(), throttr.Config{
//				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return srv.Dial(ctx) },
//			})
//			require.NoError(t, err)
//			defer client.Close()
//
//			limiter := throttr.NewRateLimit(client.Backend())
//			for _, want := range []bool{true, false} {
//				res, err := limiter.Hit(t.Context(), "user:42", time.Minute, 1)
//				require.NoError(t, err)
//				require.Equal(t, want, res.Allowed)
//			}
//			time.Sleep(time.Minute)
//			res, err := limiter.Hit(t.Context(), "user:42", time.Minute, 1)
//			require.NoError(t, err)
//			require.True(t, res.Allowed)
//		})
//	}
//
// The records of a window do not have the name of the key: package mocklimit finds a window.
// [Server.Counter] returns what a Client of package throttr has stored under a key.
//
// [RunT] closes the server at the end of the test, and fails the test for each
// [Violation]: an event that would have crashed or silenced a real server. With [Start],
// the caller does both.
//
// One clock drives TTLs, graces and accessors: the real one, which is that of the bubble in testing/synctest, or with
// [WithVirtualClock] one that only [Server.Advance] advances, for tests of requests alone. [WithHazard] switches the
// hazards of a real server. By default records expire at the end of their TTL and expiry does no harm, and on a
// server that a client has parked they do not expire; [WithRealCollector] makes expiry as late and as harmful as it
// is on a real one.
//
// # Faults
//
//   - [Server.Inject] delays, drops, duplicates or replaces responses; [Server.Split] sends them in small pieces.
//   - [Server.Cut] ends a connection at any byte; [Server.HalfOpen] leaves connections open that lose all bytes;
//     [Server.Disconnect] drops all. [Server.Send] sends bytes that no request asked for.
//   - [Server.Refuse], [Server.HoldAccept], [Server.Restart] and [Server.Recompile] act on the server.
//     [WithRealServiceTime] makes it as slow as a real one.
//
// # Networks
//
// A server listens on TCP, on a unix socket, or on nothing; see [WithAddr]. In each case [Server.Dial] connects in
// memory. A test that connects so, and starts the server in its bubble, can use testing/synctest.
//
// All methods are safe for concurrent use.
package mockserver

// A request's way, and which file has it:
//
//   - network.go: a connection is accepted, and begins to be served.
//   - conn.go: read receives bytes, turn executes the requests in them one after the other, step executes one.
//   - protocol.go decodes the request, calls the store or the channels, and encodes the response; listing.go has the
//     requests about the server itself.
//   - store.go has the records; collector.go expires them.
//   - fault.go: queue adds the response to those to be sent, after what tests have injected; writer.go sends it.
//
// The other files have one hazard or one kind of fault each, or what tests call: inspect.go reads and writes records.
