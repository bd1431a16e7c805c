// Package rediswindow keeps rate-limit windows on Redis or Valkey, through any client. It imports
// no client. Modules that adapt one are redisbackend, for rueidis, and redisbackend/goredis, for
// go-redis. For another client, implement [Client], which has five methods:
//
//	limiter := throttr.NewRateLimit(rediswindow.New(client))
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// It needs Redis 6 or later, or Valkey. Windows follow the clock of the server, so the clocks of
// clients need not agree.
//
// # Errors
//
// A limit or a number that the backend does not accept is a mistake in the program. The error matches
// [window.ErrScale], [window.ErrRange] or [window.ErrUnsupported], and no throttr.Policy applies to it. If the
// server is away, errors match [window.ErrUnavailable]; if it has no memory, also [window.ErrFull]; if too many calls
// are queued, [window.ErrOverloaded]. All others are those of ctx or of the client. They do not say whether the
// hit was counted.
//
// A call returns when its ctx ends, but Redis may still execute it later. The error of a hit that shares
// requests (see below) ends with "the hit was not counted" if it was not sent, and otherwise with "the
// hit may have been counted". That of another call ends with "it was not sent" if it was not.
//
// # Shared requests
//
// Hits and charges on fixed and aligned windows share requests: those of all goroutines that are ready to run
// when the request is made, on any keys and limits, up to 256. The result is that of requests of their own, in
// the order in which they are queued: each hit has its own place in the count of its window, and is compared with
// its own limit. All are counted, those over their limits, too.
//
// A hit does not wait for a response to another one unless 8 requests are in flight. While the server
// does not keep up, or does not respond, hits are queued, and share the next request. When 100,000 are
// queued, see [WithMaxQueued], further ones fail. A hit whose ctx ends in the queue is not sent. One without a
// deadline can wait for several timeouts of the client, as each frees room for some hits only: use a ctx with a
// deadline, or throttr.WithTimeout.
//
// If a request fails, all hits that share it fail. But if Redis can't add to one of several windows,
// because something else is stored there, only the hits on that one fail. A request has the values of
// the ctx of one of its hits, such as those of a trace.
//
// In a cluster, hits share a request only if they have the same key. Of each slot, 8 requests can be in
// flight. A proxy to several servers may refuse scripts on several keys with CROSSSLOT. Then a request is sent
// again, for each key.
//
// # Requests of their own
//
// Takes, and all calls of rolling algorithms, have requests of their own. At most 256 of them are in flight; in a
// cluster, 256 of each 64th of the slots. Further calls wait, first come, first served, as many as [WithMaxQueued]
// says. A call whose ctx ends while it waits is not sent. So callers that give up while Redis does not respond
// leave at most 256 requests behind, which Redis executes when it goes on, until the client has given them up,
// too, and closed its connection: each timeout of the client frees room for further ones.
//
// # Data in Redis
//
// All windows of a key are one hash. So a call accesses one key in one slot of a cluster, and Delete finds every
// limit. The name of the hash of key user:42 is
//
//	throttr:{k:user:42}:v1
//
// A key that is longer than 128 bytes or contains braces is represented by its SHA-256:
//
//	throttr:{h:<64 hexadecimal digits>}:v1
//
// The text between the braces is the hash tag. The end is the version of what is stored: a release that stores
// something else has another one, and counts anew, as does one from before 1.0, whose names have no version.
// While both run, each has counts of its own.
//
// Each field of the hash is a window. Its name is the letter of the algorithm, the scale in microseconds, and
// the name of the limit, if there is one, after a colon: f60000000:login. The letters are f for fixed, a for
// aligned and w for sliding windows, b for token buckets, and l for sliding logs. The values are numbers in binary
// form, which the scripts in the folder lua describe. That of a fixed window is three IEEE 754 doubles,
// little-endian: the count, the start in microseconds since 1970, and a random ID. In Lua, and in Python:
//
//	struct.unpack('<ddd', value)
//
// Expiry in Redis only frees memory: a hash expires one second after its last window is over. In a hash of 16
// fields or more, those that are over are removed earlier, some with each window that opens; opening one
// takes a hit a second request then.
//
// # Commands
//
// Each call is one script on the hash of its key; TakeAll is one script on all keys, in a cluster one for each.
// A hit on a fixed window reads the expiry of the hash only if it opens the window.
//
// Scripts are sent by their digest. If a server does not have a script, for example after a
// restart, the first call needs a second round trip. A request that Redis may have executed is
// never sent again, neither by this package nor by the clients of these modules.
//
// # Accuracy
//
// Counts are as durable as the data in Redis. In each of these cases more hits than the limit can
// be allowed:
//
//   - A failover to a replica loses what was not replicated, and continues with the clock of the
//     replica.
//   - A restart without persistence loses all windows.
//   - A server whose memory is full evicts windows, unless its maxmemory-policy is noeviction.
//
// If the clock of a server is changed, the ends of its windows change with it. If it is set back, windows
// that start a scale or more in the future are over, so that no key is denied until the clock gets there.
package rediswindow
