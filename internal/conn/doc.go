// Package conn implements one pipelined connection to a Throttr server. Any number of
// goroutines share it: a [Conn] writes the requests of many callers together and matches
// the responses with the requests by their order, as responses carry no id.
//
//	c := conn.New(nc, nil, options)
//	cl := calls.Get()
//	conn.Add(cl, codec.Query{Key: key})
//	err := c.Enqueue(cl)
//	done, sent, err := cl.Wait(ctx)
//
// H1 to H27 are hazards of servers, which docs/internals/protocol.md describes.
//
// # Invariants
//
//   - Responses come in the order in which requests are written, so calls are put in flight
//     in that order, too.
//   - A call is done once: with its responses, or with an error.
//   - A call that has failed says whether it may have been executed (sent): whether a byte of it
//     may have left. A connection never writes a call twice. (The pool may send one again, see pool.Do.)
//   - At most MaxInFlight requests are in flight, unless a single call has more. A request is in
//     flight until its response has come, even if its caller gives up: the server still keeps a
//     response (H4).
//   - A caller is never blocked by the network, only by Wait, which ends with its context.
//   - Each received byte is decoded once and in order, by whichever goroutine reads.
//   - When Close returns or Done is closed, every call is done or abandoned, and neither of
//     the two goroutines is left.
//
// # Parts
//
//	call.go    a Call, from its caller's hands into the connection's and back
//	conn.go    a Conn, and how a call is queued on it
//	write.go   the write side: which calls share a write, and which goroutine writes
//	wire.go    the frames that depend on the value size
//	read.go    the read side: reads, matches responses with calls, and notices a stall
//	inline.go  which goroutine reads: the reader goroutine, or a lone caller
//	end.go     how a connection ends, and how calls fail
//
// Each side belongs to one goroutine at a time, its owner. What the two sides share is guarded by Conn.mu. A
// connection has two goroutines, the writer and the reader, which sleep if they can.
//
// # How a call travels
//
// Enqueue puts the call into the queue. If no goroutine is writing, the caller becomes the owner of the write side:
// it puts all queued calls that may be written in flight, and writes them without blocking. What the socket does not
// accept is left to the writer goroutine. So the busier a connection is, the more calls share a write.
//
// The reader goroutine decodes the responses, accounts for them, and wakes the callers. After a read that completed
// a single call, it gives the read side up, and the next caller reads its own response in Wait. It continues when
// others wait, or when no caller reads for a while. All use the same buffer, so that a frame may begin with one
// reader and end with another. A response that can be of any length goes to Call.Decode part by part, and
// the goroutine that reads waits until that has returned.
//
// A caller whose context ends abandons its call: a queued one is dropped when its turn comes, and the response to one
// in flight is received and dropped.
//
// # How a connection ends
//
// Cut closes the queue and the network connection, which ends both goroutines. The writer,
// which is the last one, then fails all calls that are left. A call in flight is reported as
// sent if the network has accepted a byte of it; a queued one is not. Reasons are a network
// error (ErrLost), bytes that can't be a response (ErrProtocol), silence (ErrStalled), and
// what Cut was called with. A retired connection ends with its last call (ErrGone). So does one
// that is closed, after its queued calls have failed, unless this takes too long.
package conn
