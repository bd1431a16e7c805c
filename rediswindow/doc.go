// Package rediswindow keeps rate-limit windows on Redis or Valkey, through any client. It imports
// no client. Modules that adapt one are redisbackend, for rueidis, and redisbackend/goredis, for
// go-redis. For another client, implement [Client], which has four methods:
//
//	limiter := throttr.NewRateLimit(rediswindow.New(client))
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// It needs Redis 6 or later, or Valkey. Windows follow the clock of the server, so the clocks of
// clients need not agree.
//
// # Errors
//
// A scale or a number that the backend does not accept is a mistake in the program. The error
// matches [window.ErrScale] or [window.ErrRange], and no throttr.Policy applies to it: see
// [ErrScale] and [ErrRange]. All other errors are those of ctx or of the client, or [ErrOverloaded].
// An error of the client does not say whether the hit was counted.
//
// A call returns when its ctx ends, but Redis may still execute it later. The error of a hit that shares
// requests (see below) ends with "the hit was not counted" if it was not sent, and otherwise with "the
// hit may have been counted". That of another call ends with "it was not sent" if it was not.
//
// # Coalescing
//
// Hits and Incs of a backend on windows, on any keys and scales, share requests: those of all
// goroutines that are ready to run when the request is made. A request has up to 256 of them. The
// result is that of requests of their own, in the order in which they are queued: each hit has its
// own place in the count of its window, and is compared with its own limit. All are counted, those
// over their limits, too.
//
// A hit does not wait for a response to another one unless 8 requests are in flight. While the server
// does not keep up, or does not respond, hits are queued, and share the next request. When 100,000 are
// queued, see [WithMaxQueued], further ones fail with [ErrOverloaded]. A hit whose ctx ends in the
// queue is not sent. One without a deadline can wait for several timeouts of the client, as each
// frees room for some hits only: use a ctx with a deadline, or throttr.WithTimeout.
//
// If a request fails, all hits that share it fail. But if Redis can't add to one of several windows,
// because something else is stored there, only the hits on that one fail. A request has the values of
// the ctx of one of its hits, such as those of a trace.
//
// In a cluster, hits share a request only if they have the same key. Of each slot, 8 requests can be in
// flight. If the client is that of a proxy to several servers, which refuses scripts on several keys
// with CROSSSLOT, a request is sent again, for each key: then use [WithoutCoalescing].
//
// Takes, and all calls of rolling algorithms, have requests of their own. [WithoutCoalescing] gives
// every hit one.
//
// # Requests of their own
//
// At most 256 requests that are not shared are in flight; in a cluster, 256 of each 64th of the slots.
// Further calls wait, first come, first served. When as many wait as [WithMaxQueued] says, further ones
// fail with [ErrOverloaded]. A call whose ctx ends while it waits is not sent. So callers that give up
// while Redis does not respond leave at most 256 requests behind, which Redis executes when it goes on,
// until the client has given them up, too, and closed its connection: each timeout of the client frees
// room for further ones.
//
// # Data in Redis
//
// All windows of a key are one hash, whatever their scales. A hit therefore accesses one key in
// one slot of a cluster, and Delete finds every scale. The name of the hash of key user:42 is
//
//	throttr:{k:user:42}
//
// A key that is longer than 128 bytes or contains braces is represented by its SHA-256:
//
//	throttr:{h:<64 hexadecimal digits>}
//
// The text between the braces is the hash tag. Each field of the hash is a window. The name of
// the field is the scale in microseconds. The value has 33 bytes: a byte 1, and then the count, the
// start, the last update and a random ID as IEEE 754 doubles, little-endian. The times are in
// microseconds since 1970. In Lua, and in Python:
//
//	struct.unpack('<Bdddd', value)
//
// A window is active until start + scale. Expiry in Redis only frees memory: a hash expires one
// second after the last end of its windows. The fields of windows that are over are removed with
// it, or earlier if a key has had 16 scales or more.
//
// Rolling algorithms have hashes of their own, so that no algorithm reads what another one has
// stored: throttr:{k:user:42}:bucket, :sliding and :log. Their fields are the scales, too. The
// values are numbers in binary form, which the scripts in the folder rolling describe. A sliding log
// also has fields with the times of its hits, 60000000:0 and so on. A hash expires when no hit in it
// counts, and takes that ended by then can't be given back any more. Scales that are over are removed
// earlier if there are 16 fields or more, some with each scale that is hit anew.
//
// # Commands
//
//   - Hit and Inc run a script that adds to active windows, or opens them. It reads the expiry of a
//     hash only if it opens a window, and extends it if necessary.
//   - Set runs a script that opens a window.
//   - Take and TakeAll run one script, in a cluster one for each key.
//   - GiveBack runs a script that subtracts from the window with the ID.
//   - Get runs a script that reads a window, and the time, which says whether it is active.
//   - Reset sends HDEL for the field.
//   - Delete runs a script that removes fields and counts the active windows among them.
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
