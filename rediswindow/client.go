package rediswindow

import (
	"context"
	"iter"
)

// Client is a client of a Redis server or cluster. It must be safe for concurrent use.
//
// A call must reach the primary of the key. A call that the server may have executed must not be
// sent again: a hit would be counted twice. A call that is given up does not affect other calls. It does not keep
// keys and args. EvalSHA and Eval must end by a timeout of the client while the server does not respond: most contexts
// that they are given never end.
//
// An error that the server has responded with is returned as it is: its text begins with a code, such as
// NOSCRIPT. One that says that the server can't be reached, or did not respond, matches
// throttr.ErrUnavailable, and one that says that the client was closed throttr.ErrClosed. If EvalSHA or Eval panics,
// the calls of the request return an error that matches neither.
type Client interface {
	// EvalSHA runs the script with this digest on keys, and returns its reply, which is a string. If
	// the server does not have the script, the text of the error begins with NOSCRIPT.
	EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error)
	// Eval runs a script on keys, as EvalSHA does.
	Eval(ctx context.Context, script string, keys, args []string) (string, error)
	// Scan returns the names of keys that match a pattern of Redis, of all primaries, by the command SCAN: a bounded
	// number at a time. It ends when ctx does. An error is the last element.
	Scan(ctx context.Context, match string) iter.Seq2[string, error]
	// Cluster reports whether the client is one of a cluster, or of anything else that keeps keys on
	// several servers by slot. Then all keys of a script are in the same slot. The answer stays the same.
	// The error says that it is not known yet, and why the client can't connect. Nothing is sent then.
	Cluster() (bool, error)
	// Punctual reports whether EvalSHA and Eval return at the deadline of their ctx at the latest. If they do, a caller
	// whose deadline is at most a second away calls them itself. Otherwise a goroutine does, with a ctx that never
	// ends, and the caller leaves at its deadline. The answer stays the same; false is always safe.
	Punctual() bool
	// Name is the name of the store in the Stats of a backend: host and port, or the path of a socket.
	Name() string
}
