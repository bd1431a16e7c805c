// Package mockserver is a Throttr server for tests, inside the process of the test. It
// implements the whole protocol byte for byte as a real server does, with its hazards,
// injects faults on demand, and has a clock that tests can advance.
//
//	func TestLimits(t *testing.T) {
//		srv := mockserver.RunT(t, mockserver.WithVirtualClock())
//		backend, err := throttr.Open(t.Context(), "throttr://"+srv.Addr(), throttr.WithClock(srv.Now))
//		require.NoError(t, err)
//		t.Cleanup(func() { backend.Close() })
//
//		limiter := throttr.NewRateLimit(backend)
//		res, err := limiter.Hit(t.Context(), "user:42", time.Minute, 1) // is allowed
//		res, err = limiter.Hit(t.Context(), "user:42", time.Minute, 1)  // is denied
//		srv.Advance(time.Minute)
//		res, err = limiter.Hit(t.Context(), "user:42", time.Minute, 1)  // is allowed
//	}
//
// The records of a window do not have the name of the key: package mocklimit finds a window.
// [Server.Counter] returns what a Client of package throttr has stored under a key.
//
// [RunT] closes the server at the end of the test, and fails the test for each
// [Violation]: an event that would have crashed or silenced a real server. With [Start],
// the caller does both.
//
// One clock drives TTLs, graces and accessors: the real one, or with [WithVirtualClock] one that only
// [Server.Advance] advances. [WithHazard] switches the hazards of a real server. By default records expire at the end
// of their TTL and expiry does no harm; [WithRealCollector] makes expiry as late and as harmful as it is on a real one.
//
// # Faults
//
//   - [Server.Inject] delays, drops, duplicates or replaces responses; [Server.Split] sends them in small pieces.
//   - [Server.Cut] ends a connection at any byte; [Server.HalfOpen] leaves connections open that lose all bytes;
//     [Server.Disconnect] drops all. [Server.Send] sends bytes that no request asked for.
//   - [Server.Refuse], [Server.HoldAccept], [Server.Restart] and [Server.Recompile] act on the server, and so does
//     [WithDescriptors]. [WithRealServiceTime] and [WithSlowCreation] make it as slow as a real one.
//
// # Networks
//
// A server listens on TCP, on a unix socket, or on nothing; see [WithAddr]. In each case [Server.Dial] connects in
// memory. A test that connects so, and starts the server in its bubble, can use testing/synctest.
//
// All methods are safe for concurrent use.
package mockserver
