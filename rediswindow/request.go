package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// maxLimits is how many limits the entries of a request have, unless a single call has more.
const maxLimits = 256

// send makes a request of calls, for a batcher. In a cluster, each key has a script of its own, because while a slot
// moves to another node, a script may have only one key; all of them are sent at once. So it is if a server says that
// the keys are not in one slot, as a proxy to several does, or that the user may not access one of them.
func (b *Backend) send(ctx context.Context, entries []*batched) {
	cluster, err := b.client.Cluster()
	if err != nil || !cluster {
		err = b.request(ctx, entries)
		if !redisclient.AboutSome(err) {
			return
		}
	}
	groups := byKey(entries)
	if err != nil && len(groups) == 1 {
		return
	}
	var all sync.WaitGroup
	for _, g := range groups[1:] {
		all.Go(func() { _ = b.request(ctx, g) })
	}
	_ = b.request(ctx, groups[0])
	all.Wait()
}

// byKey groups entries that have the same single key. Others are groups of their own.
func byKey(entries []*batched) (groups [][]*batched) {
	at := map[string]int{}
	for _, e := range entries {
		hash := e.Value.asks[0].hash
		for i := range e.Value.asks {
			if e.Value.asks[i].hash != hash {
				hash = ""
			}
		}
		if i, ok := at[hash]; ok && hash != "" {
			groups[i] = append(groups[i], e)
			continue
		}
		at[hash] = len(groups)
		groups = append(groups, []*batched{e})
	}
	return groups
}

// request makes calls with one script, and stores what it says of them, or the error, which it also returns.
func (b *Backend) request(ctx context.Context, entries []*batched) error {
	reply, err := b.run(ctx, entries)
	for _, e := range entries {
		result := ""
		if err == nil {
			size := len(e.Value.asks) * answerSize
			result = reply[:size]
			reply = reply[size:]
		}
		for c := e; c != nil; c = c.Next {
			c.Value.result = result
			c.Value.err = err
		}
	}
	return err
}

// run runs the script for calls, and returns an answer for each of their limits.
func (b *Backend) run(ctx context.Context, entries []*batched) (reply string, err error) {
	now, err := b.time()
	if err != nil {
		return "", err
	}
	n := 0
	for _, e := range entries {
		n += len(e.Value.asks)
	}
	all := append(make([]string, 0, 2*n+1), now)
	for _, e := range entries {
		for i := range e.Value.asks {
			text := e.Value.asks[i].text
			if i == 0 && e.Times > 1 {
				text = strconv.Itoa(e.Times) + text[1:]
			}
			all = append(all, text)
		}
	}
	for _, e := range entries {
		for i := range e.Value.asks {
			all = append(all, e.Value.asks[i].hash)
		}
	}
	reply, err = b.eval(ctx, windowsScript, all[n+1:], all[:n+1])
	if err == nil && len(reply) != n*answerSize {
		err = fmt.Errorf("%w: the script returned %d bytes for %d limits", window.ErrUnavailable, len(reply), n)
	}
	return reply, err
}

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

// While a slot moves to another node of a cluster, scripts of several keys are refused if one of them has moved and
// another has not. They are sent again for up to moveTime, as the next key moves soon.
const (
	moveTime     = time.Second / 5
	moveMinPause = 5 * time.Millisecond
	moveMaxPause = 40 * time.Millisecond
)

// eval runs a script on keys, unless the backend is closed. Like the client, it may ignore the end of ctx.
func (b *Backend) eval(ctx context.Context, s *script, keys, args []string) (string, error) {
	response, err := b.evalOnce(ctx, s, keys, args)
	if redisclient.HasCode(err, "TRYAGAIN") {
		pauses := backoff.New(moveMinPause, moveMaxPause)
		for begun := time.Now(); redisclient.HasCode(err, "TRYAGAIN") && time.Since(begun) < moveTime && pauses.Wait(ctx, nil) == nil; {
			response, err = b.evalOnce(ctx, s, keys, args)
		}
	}
	return response, err
}

// evalOnce sends the digest of a script, and sends the script only to a server that does not have it.
func (b *Backend) evalOnce(ctx context.Context, s *script, keys, args []string) (string, error) {
	if b.closed.Load() {
		return "", window.ErrClosed
	}
	response, err := b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		response, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return response, redisclient.ReplyError(err, keys...)
}
