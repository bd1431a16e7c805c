// Package rediswindow keeps rate-limit windows on Redis or Valkey, through any client. It imports
// no client. Modules that adapt one are redisbackend, for rueidis, and redisbackend/goredis, for
// go-redis. For another client, implement [Client], which has six methods:
//
//	limiter := throttr.NewRateLimit(rediswindow.New(client))
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// It needs Redis 6.2 or later, or Valkey. Windows follow the clock of the server, so the clocks of
// clients need not agree.
//
// # What happens to a call
//
// A Take of a limiter goes through these files, in this order:
//
//  1. internal/outage/guard.go: it bounds the time, and makes no call while the circuit of the node is open. A program
//     that calls the backend itself begins with the next one.
//  2. backend.go: the method makes an op of its arguments, refuses a limit that it can't keep, and at the end counts
//     the call for Stats.
//  3. nodes.go, op.go: the name of the hash, the node that has it, and the text of the op, which the script gets.
//  4. request.go: a bundle is the ops that are made together, with an answer each: TakeAll, takeall.go, and Delete make
//     several. It enters the batcher of the node, and again if a calendar window has to be that of the server's time.
//  5. internal/batch: the caller makes a request of its bundle, or waits for one that a goroutine makes of several, see
//     Shared requests.
//  6. request.go: a request is an argument for each op; equal ones are one. In a cluster, each key has a script.
//  7. client.go, and adapter.go of redisbackend: the client sends the script's digest, and if the server does not know
//     it, the script. What an error of the server is about says internal/redisclient.
//  8. lua/windows.lua: the script does on the server what is asked, and answers each op.
//  9. op.go: the answer becomes the window, for each of equal ops its own.
//
// An exchange of claims on places in flight goes through others:
//
//  1. package inflight, whose doc.go names its files, and internal/outage/guard.go
//  2. exchange.go: claims share a script, which is a request of its own; in a cluster, each has one.
//  3. wake.go: those who wait are noted, so that a message wakes them when there is room.
//  4. client.go, and adapter.go of redisbackend, as above
//  5. lua/exchange.lua: the script makes the claims.
//  6. exchange.go: its response becomes the places.
//
// List, list.go with lua/fields.lua, asks a hash for its fields, and then for windows. ListPlaces is there, too.
//
// # Errors
//
// A limit or a number that the backend does not accept is a mistake in the program. The error matches
// [window.ErrScale], [window.ErrRange] or [window.ErrUnsupported], and no throttr.Policy applies to it. If the
// server is away, errors match [window.ErrUnavailable]; if it has no memory, also [window.ErrFull]; if too many calls
// are queued, [window.ErrOverloaded]. All others are those of ctx or of the client. After one of
// the client, the hit may have been counted or not.
//
// A reply about the server, such as one of a server that refuses the script, or one that nobody knows, matches
// [window.ErrUnavailable]. A reply about a key does not: the user may not access it, or it has something else than
// windows. It fails the calls on that key only. Errors have no argument of a request, and so no key but that of the
// call.
//
// A call returns when its ctx ends, but Redis may still execute it later. Its error then ends with "it was not sent" or
// with "it may have been counted".
//
// # Shared requests
//
// While nothing is queued, and fewer than two requests are in flight, or up to 4 that take long, a caller sends its
// call itself if its ctx never ends, or if the client is punctual, see [Client], and the deadline is at most a second
// away: if its ctx is canceled, it may return at the deadline. After a request of several calls, and otherwise, calls
// are queued: when a request is back, the next one has all that is queued by then, of all methods, on any keys and
// limits, up to 256 limits. Two requests are in flight at a time, and up to 4 if they take longer than 150 µs, or if
// the last one is older when a call is made. Package internal/batch has the rules. Scripts of other calls, such as
// those for places in flight, are requests of their own, up to 32 at a time, for which no others wait.
//
// The result is that of requests of their own, one after the other: each hit and each take has its own position in
// the count of its window, and TakeAll makes all takes or none. Equal calls follow each other; otherwise their order
// is that in which they are queued.
//
// While the server does not respond, up to [WithMaxQueued] calls are queued. A call whose ctx ends in the queue is
// not sent. One without a deadline can wait for several timeouts of the client: use a ctx with a deadline, or
// throttr.WithTimeout. Callers that give up while Redis does not respond leave at most 4 requests behind, with up to
// 1024 limits, which Redis executes when it goes on. Each timeout at which the client, too, gives them up and closes
// its connection frees room for further ones.
//
// If a request fails, all calls that share it fail. A request of several calls has the values of the ctx of one of
// them, such as those of a trace.
//
// All this is for each node of a cluster: a node that hangs stops the calls for its own keys. The keys of a request
// to a node have a script each, which are sent at once. If a proxy to several servers refuses a script on several
// keys with CROSSSLOT, each key gets a script, too. Which node has a slot is asked every two seconds, by a script
// with CLUSTER SLOTS; who is mistaken about it only shares requests with others.
//
// # Data in Redis
//
// All windows of a key are one hash. So a call accesses one key in one slot of a cluster, and Delete finds every
// limit. The name of the hash of key user:42 is
//
//	throttr:{k:user:42}:v2
//
// A key that is longer than 128 bytes or contains braces is represented by its SHA-256:
//
//	throttr:{h:<64 hexadecimal digits>}:v2
//
// The text between the braces is the hash tag, and the end is the version of what is stored. Releases with another
// version, or from before 1.0, with none, have counts of their own.
//
// Each field of the hash is the state of a limit. Its name is the letter of the algorithm, the scale in microseconds,
// and the name of the limit, if there is one, after a colon: f60000000:login. The letters are f for fixed, a for
// aligned and w for sliding windows, b for token buckets, l for sliding logs, and c for calendar windows, which have
// the unit (1 is the day, 4 the year), the start day and the zone in place of the scale: c3,17,Europe/Berlin:quota.
// The value is eight IEEE 754 doubles, little-endian, which the script lua/windows.lua describes. Max and Burst are
// among them as they were last used. In Lua, and in Python:
//
//	struct.unpack('<dddddddd', value)
//
// Expiry in Redis only frees memory: a hash expires one second after its last window is over, and up to a scale later
// with rolling algorithms. Fields of windows that are over stay until then.
//
// # Places in flight
//
// The places of a key and name, see package inflight, are one hash, such as throttr:{k:user:42}:f1:exports, which
// lua/exchange.lua describes. It goes away one to two leases after it was used last. The birth, throttr:{b}:born1,
// says when the data set was created, and by which run of which server; in a cluster, each slot has one.
//
// A data set is another one after FLUSHALL, after a restart of the server, whatever it had saved, when another server
// has become the primary, and when replication begins or has ended for an hour: then the server has another
// replication id. Strict claims that do more than give back look for that, and claims of processes whose places the
// server does not know; all are told. For a lease after it was created, strict claims are granted nothing. A prefix or
// slot that was never used is as old as its server has been up, unless that was a replica, or has run FLUSHALL,
// FLUSHDB, SWAPDB, CONFIG RESETSTAT, CLUSTER SETSLOT or DELSLOTS, as redis-cli does for a slot whose node is gone.
// (Redis 6 does not say which of the last three it has run.) A slot that moves to another server is another data set,
// and fails with TRYAGAIN while it moves. The bound of strict claims breaks if Redis evicts hashes: its
// maxmemory-policy must be noeviction; if its clock jumps; if its user may not run INFO, and it was started again with
// data that it had saved; if someone deletes hashes; and if two servers believe to be the primary: each then grants up
// to Max, until the leases of the other's are over.
//
// A server without memory grants no more places, but those that are held are renewed and given back. If the client is a
// [Subscriber], its user needs the channels throttr:wake:*.
//
// # Commands
//
// A request is one script on the hashes of its keys, which reads and writes one field for each limit; TakeAll in a
// cluster, or after CROSSSLOT, is one script for each key. List is two scripts for each hash, and ListPlaces one. Ping,
// which Open calls, runs the script on one server in a way that changes nothing. A window that is open does without the
// expiry of the hash.
//
// A request that Redis may have executed is never sent again, neither by this package nor by the clients of these
// modules.
//
// # Accuracy
//
// Counts are as durable as the data in Redis. More hits than the limit can be allowed after a failover, which loses
// what was not replicated, and continues with the clock of the replica; after a restart without persistence; and if a
// server whose memory is full evicts windows, as it does unless its maxmemory-policy is noeviction.
//
// If the clock of a server is changed, the ends of its windows change with it. If it is set back, windows that start a
// scale or more in the future are over.
package rediswindow
