// Package postgresbackend keeps rate-limit windows in a table of PostgreSQL 14 or later, with pgx. Any number of
// processes share exact windows of all algorithms, in the database that they have anyway.
//
//	import _ "github.com/throttr-go/throttr/postgresbackend"
//
//	backend, err := throttr.Open(ctx, "postgres://app:secret@10.0.0.1/app")
//	if err != nil {
//		return err
//	}
//	defer backend.Close()
//
//	limiter := throttr.NewRateLimit(backend)
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// [New] takes a pool of your own. Open makes the table if it is missing, [Schema] is its SQL.
//
// # How it counts
//
// A row has what is counted of a key and limit, in a form that only this package reads. The table is a store of
// records: what a call does with one is decided here, by the functions that package memory uses, and at the time of
// the server.
//
// Calls that are made at one time share a request, of two round trips:
//
//   - The first reads the rows, and the time.
//   - The second writes those that have changed, each unless another process has changed it since the first: that is a
//     conflict, and the calls for such a row are made again. If nothing has changed, because all takes are refused,
//     there is no second one.
//
// Nothing is locked in between: a process that stops there makes nobody wait. A TakeAll of several counts locks their
// rows in between, and so do a call after three conflicts, and those for its key in the next second. The lock of a
// process that stops is gone after a second.
//
// Every write gives its row another version, a random number. So what was read is what is changed, or the write does
// nothing. A row that has ended is deleted a minute later, by one of the processes.
//
// # What happens to a call
//
// A Take goes through these files, in this order:
//
//  1. postgresbackend.go: the method checks its arguments, and submits a call: what to do, and an op for each row that
//     it is about. When the result is there, it returns the windows of the ops, and counts the call for Stats.
//  2. table.go: what is stored of a key and limit is the id of the row.
//  3. request.go: the call enters one of two lanes. Requests of the free lane lock nothing, those of the locking lane
//     lock their rows. A lane has one request in flight, and queues calls until it is back: package internal/batch does
//     that. The request makes the first round trip, and loads what it has read into the rows, which its calls share. It
//     applies all calls, one after the other, and makes the second round trip. A call whose row has a conflict is made
//     again, and after three of them in the locking lane.
//  4. call.go: to be applied, a call changes the records of its rows, by package internal/algorithm. That sets its
//     windows, and marks the rows that have to be written.
//  5. table.go: the statements of the round trips, and the table. It deletes rows that are over.
//  6. server.go: what both round trips and all others have in common: a connection, another attempt if nothing was
//     done, a time limit, and what an error of the server means.
//
// Apart from that, open.go reads URLs.
//
// # Errors
//
// An error of the server matches [window.ErrUnavailable], also one about a table or a permission that is missing. A row
// that has something else than a record of this version fails the calls for its key and limit alone. If a request
// fails after its second round trip has begun, it is unknown whether its calls were counted. Before, it is repeated.
package postgresbackend
