package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/window"
)

var (
	//go:embed lua/windows.lua
	windowsLua string
	//go:embed lua/log.lua
	logLua string
)

// windowsScript makes the calls of a request. See there for its arguments and what it returns.
var windowsScript = newScript(strings.Replace(windowsLua, "--[[ log.lua ]]", logLua, 1))

// script is a script with its digest.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// eval runs a script on keys. It sends the digest, and sends the script only to a server that does
// not have it. Like the client, it may ignore the end of ctx.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string) (string, error) {
	response, err := b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		response, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return response, replyError(err)
}

// unavailable are the codes of replies of servers that count nothing at present: they load their data, have
// no primary, are a replica, run a script, can't write to their disk, or do not let the user in.
var unavailable = []string{
	"LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "TRYAGAIN ", "READONLY ", "BUSY ", "MISCONF ", "NOREPLICAS ",
	"NOAUTH ", "WRONGPASS ", "NOPERM ",
}

// notPermitted is in the error of a script one of whose commands or keys the user may not use.
const notPermitted = "The user executing the script can't "

// replyError returns an error that also matches [window.ErrUnavailable] if it is a reply of a server that
// counts nothing at present, and also [window.ErrFull] if it has no memory.
func replyError(err error) error {
	if err == nil || errors.Is(err, window.ErrUnavailable) {
		return err
	}
	if strings.Contains(err.Error(), "OOM command not allowed") { // before version 7, it is in the error of the script
		return &memoryError{err}
	}
	away := func(code string) bool { return strings.HasPrefix(err.Error(), code) }
	if slices.ContainsFunc(unavailable, away) || strings.Contains(err.Error(), notPermitted) {
		return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
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
