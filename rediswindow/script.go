package rediswindow

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

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
