// Package redisbackend keeps rate-limit windows on Redis or Valkey, alone or as a cluster:
// exact for any number of processes, one round trip per hit.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	limiter := throttr.NewRateLimit(redisbackend.New(client))
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// It takes Redis from version 6 on, or Valkey. The time is the server's, so clients' clocks
// need not agree.
//
// # What is in Redis
//
// All windows of a key are one hash, whatever their scales, so that a hit touches one key,
// a cluster has it in one slot, and Delete finds every scale. Key user:42 is
//
//	throttr:{k:user:42}
//
// and a key of more than 128 bytes, or with braces in it, is its SHA-256:
//
//	throttr:{h:<64 hexadecimal digits>}
//
// What is between the braces is the hash tag. Each field of the hash is a window. Its name
// is the scale, its value is count, start and last update, with a space in between; all
// times are microseconds, since 1970 where they are not a length:
//
//	60000000 → 3 1893456000000000 1893456012345678
//
// The window is active while the time is before start + scale. Expiry only tidies up: the
// hash goes a second or two after the last end that any of its windows had. Fields of
// windows that are over go with it, or earlier where a key has had 16 scales and more.
//
// # What is asked of Redis
//
//   - Hit and Inc: a script that adds to the active window and writes it back, or opens one.
//     Only to open one does it look at the hash's expiry, and sets a later one if need be.
//   - Set: a script that opens a window.
//   - Get: a script that reads a window, and the time to tell whether it is active.
//   - Reset: HDEL of the field.
//   - Delete: a script that removes fields, and counts the active windows among them.
//
// Scripts go by their hash. A server that does not know one, having been restarted for
// instance, costs a second round trip, once. Nothing is sent again where it may have been
// executed: neither by this package nor, for these calls, by the client.
//
// # What is not exact
//
// The counts are as safe as Redis keeps them. A failover to a replica forgets what was not
// replicated yet, and goes on by the replica's clock; a restart without persistence forgets
// everything; so does, now and then, a server that evicts when memory is full, unless its
// maxmemory-policy is noeviction. Each time, more hits than the limit can be let through. A
// server's clock that is set moves the ends of the windows with it.
//
// An error does not tell whether the hit was counted. A call whose ctx ends under way
// returns at once, but may be executed later.
package redisbackend
