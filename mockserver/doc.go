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
// # Time
//
// One clock drives TTLs, graces and accessors: the real one, or with [WithVirtualClock]
// one that only [Server.Advance] advances. As on a real server, a QUERY never finds all of
// the TTL that an INSERT has just set: the remaining TTL is taken a nanosecond later.
//
// # Hazards
//
// [WithHazard] switches the hazards of a real server; see [Hazard] for their defaults.
//
// By default records expire at the end of their TTL and expiry does no harm. On a real
// server they expire late, and records that expire by themselves can silence the server
// for good. [WithRealCollector] makes the mock server do the same.
//
// # Faults
//
//   - [Server.Inject] delays, drops, duplicates or replaces responses.
//   - [Server.Cut] ends a connection at any byte; [Server.HalfOpen] leaves connections
//     open that lose all bytes; [Server.Disconnect] drops all.
//   - [Server.Split] sends responses in small pieces.
//   - [Server.Send] sends bytes that no request asked for.
//   - [Server.Refuse], [Server.HoldAccept], [Server.Restart] and [Server.Recompile] act on the server,
//     and so does [WithDescriptors].
//
// [Server.Leaked] counts the responses that clients have left unread.
//
// For a slow server, inject a [Fault] with a Delay. [WithRealServiceTime] and [WithSlowCreation]
// make the server as slow as a real one: requests wait until those before them are done.
//
// # Networks
//
// A server listens on TCP, on a unix socket, or on nothing; see [WithAddr]. In each case
// [Server.Dial] connects in memory. A test that connects so, and starts the server in its
// bubble, can use testing/synctest.
//
// All methods are safe for concurrent use.
package mockserver
