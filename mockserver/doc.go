// Package mockserver plays a Throttr server inside the test's own process: the
// whole protocol, byte for byte as a real server was seen to answer, with its
// hazards, faults on demand and a clock that tests can move.
//
//	func TestLimits(t *testing.T) {
//		srv := mockserver.RunT(t, mockserver.WithValueSize(2))
//		client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{srv.Addr()}})
//		…
//		quota, ok := srv.Counter("user:42")
//	}
//
// [RunT] closes the server at the test's end and fails the test for each
// [Violation]: what would have crashed or stalled a real server. [Start] leaves
// both to the caller.
//
// # Time
//
// There is one clock for TTLs, graces and accessors: the real one, or with
// [WithVirtualClock] one that moves only by [Server.Advance]. A request is
// executed a nanosecond after what the clock says: a QUERY never answers the
// whole TTL that an INSERT just gave, and on a real server it never does either.
//
// # Hazards
//
// What a real server does and should not is switched with [WithHazard]; see
// [Hazard] for what is on from the start.
//
// # Faults
//
// [Server.Inject] delays, drops, duplicates or garbles responses, [Server.Cut]
// ends a connection at any byte, [Server.Split] tears responses apart, [Server.Send]
// says what nobody has asked for, [Server.HalfOpen] has connections lead nowhere, and
// [Server.Disconnect], [Server.Refuse], [Server.Restart] and [Server.Recompile] do what
// they say.
//
// # Networks
//
// A server listens on TCP, on a unix socket, or on nothing at all ([WithAddr]).
// [Server.Dial] connects in memory to any of them: then a test runs in a bubble
// of testing/synctest, given that the server was started inside it.
//
// All methods are safe for concurrent use.
package mockserver
