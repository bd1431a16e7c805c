package rediswindow

import (
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"runtime/debug"
	"strings"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
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

// Subscriber is a [Client] that can subscribe to a channel. With one that can't, those who wait for places in
// flight ask every eighth of a lease at least, and are not told when one becomes free.
type Subscriber interface {
	Client
	// Subscribe calls received with the messages of a channel until ctx ends, or the client or the connection is
	// closed. It returns why. A panic is as an end. It calls received with "", which is no message, whenever the server
	// has confirmed the subscription: messages before that are lost, so those who wait ask once more.
	Subscribe(ctx context.Context, channel string, received func(message string)) error
}

// script is a script with its digest.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// eval runs a script on keys, unless the backend is closed: it sends the digest, and the script only to a server that
// does not have it. Like the client, it may ignore the end of ctx.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string) (reply string, err error) {
	if b.closed.Load() {
		return "", window.ErrClosed
	}
	defer recovered(&err)
	reply, err = b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		reply, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return reply, redisclient.ReplyError(err, keys...)
}

// recovered is deferred by functions that call the client. If it has panicked, that is their error: many of them run on
// goroutines of the package, where nobody could recover.
func recovered(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("the client has panicked: %v\n%s", cause, debug.Stack())
	}
}

// evalAlone runs a script on keys of a node, in a request of its own. It returns when ctx ends.
func (b *Backend) evalAlone(ctx context.Context, s *script, keys []string, args ...string) (string, error) {
	n, err := b.nodeOf(keys[0])
	if err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil { // also if there is room
		return "", notDone(err, false)
	}
	select {
	case n.alone <- struct{}{}:
	case <-ctx.Done():
		return "", notDone(ctx.Err(), false)
	}
	var reply string // no result has a name: a late answer is written after the return
	ended := api.Await(ctx, func() {
		reply, err = b.eval(context.WithoutCancel(ctx), s, keys, args)
		<-n.alone
	})
	if ended != nil {
		return "", notDone(ended, true)
	}
	return reply, err
}

// notDone returns the error of a call that returns without its result.
func notDone(err error, sent bool) error {
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// appendFloat appends a number as scripts read it.
func appendFloat(to []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(f))
}

// float reads a number of a reply.
func float(s string) float64 { return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[:8]))) }
