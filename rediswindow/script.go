package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/throttr-go/throttr/internal/redisclient"
)

var (
	//go:embed lua/windows.lua
	windowsLua string
	//go:embed lua/fields.lua
	fieldsLua string
)

var (
	// windowsScript makes calls. See there for its arguments and what it returns.
	windowsScript = newScript(windowsLua)
	// fieldsScript returns what a hash has.
	fieldsScript = newScript(fieldsLua)
)

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
	return response, redisclient.ReplyError(err, keys...)
}
