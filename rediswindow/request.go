package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// call is what is asked together, of one limit or of several.
type call struct {
	asked []question
	rank  int // how many equal calls of the request were made before it
	err   error
}

type (
	batched = batch.Call[call]
	batcher = batch.Batcher[[2]string, call]
	entry   = []*batched // equal calls, which are one of the script
)

const (
	// patience is some round trips to a server that is near: until then, another request would take more time of both
	// sides than it saves.
	patience = 150 * time.Microsecond
	// maxLimits is how many limits the entries of a request have, unless a single call has more.
	maxLimits = 256
	// maxAlone is how many requests that are not shared a node has in flight.
	maxAlone = 32
)

// newNode returns a node, to which nothing has been sent.
func (b *Backend) newNode(name string) *node {
	shared := batch.New(batch.Options[[2]string, call]{
		Send: b.send,
		Key: func(c *call) ([2]string, bool) {
			q := &c.asked[0]
			return [2]string{q.hash, q.text}, len(c.asked) == 1 && q.shares()
		},
		Size:    func(c *call) int { return len(c.asked) },
		MaxSize: maxLimits, MaxQueued: b.maxQueued, Patience: patience, Late: !b.client.Punctual(),
	})
	return &node{name: name, shared: shared, alone: make(chan struct{}, maxAlone)}
}

// run has the node of its keys make a call. It returns when ctx ends.
func (b *Backend) run(ctx context.Context, c *batched) error {
	n, err := b.nodeOf(c.Value.asked[0].hash)
	if err != nil {
		return err
	}
	sent, err := n.shared.Do(ctx, c)
	if err != nil {
		return notDone(err, sent)
	}
	if c.Value.err != nil && ctx.Err() != nil {
		return notDone(ctx.Err(), true)
	}
	return c.Value.err
}

// runScript runs a script on keys of a node, in a request of its own. It returns when ctx ends.
func (b *Backend) runScript(ctx context.Context, s *script, keys []string, args ...string) (string, error) {
	n, err := b.nodeOf(keys[0])
	if err != nil {
		return "", err
	}
	select {
	case n.alone <- struct{}{}:
	case <-ctx.Done():
		return "", notDone(ctx.Err(), false)
	}
	if err := ctx.Err(); err != nil { // both may have been ready
		<-n.alone
		return "", notDone(err, false)
	}
	var reply string
	ended := api.Await(ctx, func() {
		reply, err = b.evalScript(context.WithoutCancel(ctx), s, keys, args)
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

// send makes a request of calls, as one script. In a cluster, each key has a script of its own, because while a slot
// moves to another node, a script may have only one key; all of them are sent at once.
func (b *Backend) send(ctx context.Context, entries []entry) {
	if cluster, err := b.client.Cluster(); err == nil && cluster {
		b.evalByKey(ctx, entries)
		return
	}
	b.eval(ctx, entries)
}

// byKey groups entries that have the same keys.
func byKey(entries []entry) [][]entry {
	groups := map[string][]entry{}
	for _, e := range entries {
		var hashes []string
		for i := range e[0].Value.asked {
			hashes = append(hashes, e[0].Value.asked[i].hash)
		}
		keys := strings.Join(slices.Compact(hashes), " ")
		groups[keys] = append(groups[keys], e)
	}
	return slices.Collect(maps.Values(groups))
}

// evalByKey runs a script for each key, all at once.
func (b *Backend) evalByKey(ctx context.Context, entries []entry) {
	groups := byKey(entries)
	var all sync.WaitGroup
	for _, g := range groups[1:] {
		all.Go(func() { b.eval(ctx, g) })
	}
	b.eval(ctx, groups[0])
	all.Wait()
}

// eval runs a script that is the calls of all entries, and stores the answers in them, or its error. If the server says
// that some keys must not be together, as a proxy to several does, or that the user may not access all of them, each
// key gets a script.
func (b *Backend) eval(ctx context.Context, entries []entry) {
	reply, err := b.evalWindows(ctx, entries)
	if redisclient.AboutSome(err) && len(byKey(entries)) > 1 {
		b.evalByKey(ctx, entries)
		return
	}
	for _, e := range entries {
		for rank, c := range e {
			c.Value.rank = rank
			c.Value.err = err
			for i := 0; i < len(c.Value.asked) && err == nil; i++ {
				c.Value.asked[i].answer = readAnswer(reply[i*answerSize:])
			}
		}
		if err == nil {
			reply = reply[len(e[0].Value.asked)*answerSize:]
		}
	}
}

// evalWindows runs windowsScript for entries, and returns an answer for each of their limits.
func (b *Backend) evalWindows(ctx context.Context, entries []entry) (reply string, err error) {
	keys := make([]string, 0, len(entries))
	args := append(make([]string, 0, 1+len(entries)), b.time())
	for _, e := range entries {
		for i := range e[0].Value.asked {
			q := &e[0].Value.asked[i]
			text := q.text
			if len(e) > 1 {
				text = strconv.Itoa(len(e)) + text[1:]
			}
			keys = append(keys, q.hash)
			args = append(args, text)
		}
	}
	reply, err = b.evalScript(ctx, windowsScript, keys, args)
	if err == nil && len(reply) != len(keys)*answerSize {
		err = fmt.Errorf("%w: the script returned %d bytes for %d limits", window.ErrUnavailable, len(reply), len(keys))
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

// evalScript runs a script on keys, unless the backend is closed: it sends the digest, and the script only to a server
// that does not have it. Like the client, it may ignore the end of ctx. If the client panics, that is an error: many
// scripts are run on goroutines of the package, where nobody could recover.
func (b *Backend) evalScript(ctx context.Context, s *script, keys, args []string) (response string, err error) {
	if b.closed.Load() {
		return "", window.ErrClosed
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the client has panicked: %v\n%s", cause, debug.Stack())
		}
	}()
	response, err = b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		response, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return response, redisclient.ReplyError(err, keys...)
}
