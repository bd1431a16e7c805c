package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed time.lua
	timeLua string
	//go:embed state.lua
	stateLua string
	//go:embed window.lua
	windowLua string
	//go:embed hit.lua
	hitLua string
	//go:embed open.lua
	openLua string
	//go:embed set.lua
	setLua string
	//go:embed get.lua
	getLua string
	//go:embed delete.lua
	deleteLua string
	//go:embed take.lua
	takeLua string
	//go:embed giveback.lua
	giveBackLua string

	//go:embed rolling/rolling.lua
	rollingLua string
	//go:embed rolling/bucket.lua
	bucketLua string
	//go:embed rolling/bucket_hit.lua
	bucketHitLua string
	//go:embed rolling/sliding.lua
	slidingLua string
	//go:embed rolling/log.lua
	logLua string
	//go:embed rolling/store.lua
	storeLua string
	//go:embed rolling/take.lua
	rollingTakeLua string
	//go:embed rolling/count.lua
	rollingCountLua string
	//go:embed rolling/get.lua
	rollingGetLua string
	//go:embed rolling/delete.lua
	rollingDeleteLua string
	//go:embed rolling/giveback.lua
	rollingGiveBackLua string
)

// script is a script with its digest. It returns an array of numbers.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

var (
	hitScript    = newScript(stateLua + hitLua + windowLua + openLua)
	setScript    = newScript(timeLua + stateLua + windowLua + setLua)
	getScript    = newScript(timeLua + stateLua + windowLua + getLua)
	deleteScript = newScript(timeLua + stateLua + windowLua + deleteLua)

	takeScript     = newScript(timeLua + stateLua + windowLua + takeLua)
	giveBackScript = newScript(timeLua + stateLua + windowLua + giveBackLua)
)

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
	return numbers, err
}
