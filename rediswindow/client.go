package rediswindow

import "context"

// Client is a client of a Redis server or cluster. It must be safe for concurrent use.
//
// A call must reach the primary of the key. A call that the server may have executed must not be
// sent again: a hit would be counted twice. A call may ignore the end of its ctx, since [Backend]
// does not wait for it any longer.
type Client interface {
	// EvalSHA runs the script with this digest on keys, and returns the numbers of its reply. If
	// the server does not have the script, the text of the error begins with NOSCRIPT, as that of
	// the server does.
	EvalSHA(ctx context.Context, digest string, keys, args []string) ([]int64, error)
	// Eval runs a script on keys, as EvalSHA does.
	Eval(ctx context.Context, script string, keys, args []string) ([]int64, error)
	// HDel removes a field of the hash with this key.
	HDel(ctx context.Context, key, field string) error
	// Cluster reports whether the client is one of a cluster, or of anything else that keeps keys on
	// several servers by slot. Then all keys of a script are in the same slot.
	Cluster() bool
}
