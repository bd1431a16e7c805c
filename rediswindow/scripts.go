package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/throttr-go/throttr/window"
)

var (
	//go:embed lua/common.lua
	commonLua string
	//go:embed lua/window.lua
	windowLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/sliding.lua
	slidingLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/store.lua
	storeLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/count.lua
	countLua string
	//go:embed lua/delete.lua
	deleteLua string
	//go:embed lua/giveback.lua
	giveBackLua string
	//go:embed lua/hit.lua
	hitLua string
	//go:embed lua/bucket_hit.lua
	bucketHitLua string
)

// script is a script with its digest. It returns an array of numbers.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

var (
	hitScript      = newScript(hitLua)
	takeScript     = newScript(withAlgorithms(takeLua))
	countScript    = newScript(withAlgorithms(countLua))
	deleteScript   = newScript(withAlgorithms(deleteLua))
	giveBackScript = newScript(withAlgorithms(giveBackLua))
)

// withAlgorithms returns a script that can do something with fields of all algorithms. Only the functions
// of those that it meets are made.
func withAlgorithms(action string) string {
	var s strings.Builder
	s.WriteString(commonLua)
	for _, a := range algorithms {
		if a != nil {
			fmt.Fprintf(&s, "algorithms.%c = function()\n%send\n", a.letter, a.source)
		}
	}
	return s.String() + storeLua + action
}

// run runs a script on keys with a request of its own.
func (b *Backend) run(ctx context.Context, s *script, keys, args []string) ([]int64, error) {
	return do(ctx, b, keys[0], func(ctx context.Context) ([]int64, error) { return b.eval(ctx, s, keys, args) })
}

// eval runs a script on keys. It sends the digest, and sends the script only to a server that does
// not have it. Like the client, it may ignore the end of ctx.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string) ([]int64, error) {
	numbers, err := b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		numbers, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return numbers, replyError(err)
}

// unavailable are the codes of replies of servers that count nothing at present: they load their data, have
// no primary, are a replica, run a script or can't write to their disk.
var unavailable = []string{"LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "TRYAGAIN ", "READONLY ", "BUSY ", "MISCONF ", "NOREPLICAS "}

// replyError returns an error that also matches [window.ErrUnavailable] if it is a reply of a server that
// counts nothing at present, and also [window.ErrFull] if it has no memory.
func replyError(err error) error {
	if err == nil || errors.Is(err, window.ErrUnavailable) {
		return err
	}
	if strings.Contains(err.Error(), "OOM command not allowed") { // before version 7, it is in the error of the script
		return &memoryError{err}
	}
	for _, reply := range unavailable {
		if strings.HasPrefix(err.Error(), reply) {
			return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
		}
	}
	return err
}

// memoryError says that a server has no memory. It matches [window.ErrFull] and [window.ErrUnavailable]: the
// server counts nothing, for any key.
type memoryError struct{ reply error }

// Error returns the text of ErrFull, and the reply.
func (e *memoryError) Error() string { return window.ErrFull.Error() + ": " + e.reply.Error() }

// Unwrap returns what it matches, and the reply.
func (e *memoryError) Unwrap() []error {
	return []error{window.ErrFull, window.ErrUnavailable, e.reply}
}
