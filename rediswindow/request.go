package rediswindow

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// command is a script on keys of one node, and its reply.
type command struct {
	script *script // windowsScript, if it shares a request
	keys   []string
	args   []string
	reply  string
	err    error

	one    [2]string // the key and the argument, if there is one of each
	shares bool      // equal ones are one
}

type (
	batched = batch.Call[command]
	batcher = batch.Batcher[[2]string, command]
)

// newNode returns a node, to which nothing has been sent.
func (b *Backend) newNode(name string) *node {
	n := &node{name: name}
	n.shared = batch.New(batch.Options[[2]string, command]{
		Send:    b.send,
		Key:     func(c *command) ([2]string, bool) { return c.one, c.shares },
		Size:    func(c *command) int { return len(c.keys) },
		MaxSize: maxLimits, MaxQueued: b.maxQueued, Patience: patience, Late: !b.client.Punctual(),
	})
	n.alone = batch.New(batch.Options[[2]string, command]{
		Send: func(ctx context.Context, entries []*batched) {
			c := &entries[0].Value
			c.reply, c.err = b.evalScript(ctx, c.script, c.keys, c.args)
		},
		Key:     func(*command) (none [2]string, may bool) { return none, false },
		Size:    func(*command) int { return 1 },
		MaxSize: 1, MaxInFlight: maxAlone, MaxQueued: math.MaxInt, Late: !b.client.Punctual(),
	})
	return n
}

const (
	// patience is some round trips to a server that is near: until then, another request would take more time of both
	// sides than it saves.
	patience = 150 * time.Microsecond
	// maxLimits is how many limits the entries of a request have, unless a single call has more.
	maxLimits = 256
	// maxAlone is how many requests that are not shared a node has in flight.
	maxAlone = 32
)

// newCommand returns a command that asks all questions of windowsScript.
func newCommand(questions []question) *batched {
	c := &batched{Value: command{script: windowsScript}}
	c.Value.keys = c.Value.one[:1]
	c.Value.args = c.Value.one[1:]
	if len(questions) == 1 {
		c.Value.shares = questions[0].shares()
	} else {
		c.Value.keys = make([]string, len(questions))
		c.Value.args = make([]string, len(questions))
	}
	return c
}

// runScript runs a script on keys of a node, in a request of its own.
func (b *Backend) runScript(ctx context.Context, s *script, keys []string, args ...string) (string, error) {
	c := &batched{Value: command{script: s, keys: keys, args: args}}
	if err := b.run(ctx, c, false); err != nil {
		return "", err
	}
	return c.Value.reply, nil
}

// run has the node of its keys run a command, which shares a request with others, or not. It returns when ctx ends.
func (b *Backend) run(ctx context.Context, c *batched, shared bool) error {
	n, err := b.nodeOf(c.Value.keys[0])
	if err != nil {
		return err
	}
	requests := n.alone
	if shared {
		requests = n.shared
	}
	sent, err := requests.Do(ctx, c)
	if err == nil {
		if c.Value.err == nil || ctx.Err() == nil {
			return c.Value.err
		}
		err = ctx.Err()
	}
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// send makes a request of commands, as one script. In a cluster, each key has a script of its own, because while a slot
// moves to another node, a script may have only one key; all of them are sent at once.
func (b *Backend) send(ctx context.Context, entries []*batched) {
	if cluster, err := b.client.Cluster(); err == nil && cluster {
		b.evalByKey(ctx, entries)
		return
	}
	b.eval(ctx, entries)
}

// byKey groups entries that have the same keys.
func byKey(entries []*batched) [][]*batched {
	groups := map[string][]*batched{}
	for _, e := range entries {
		keys := strings.Join(slices.Compact(slices.Clone(e.Value.keys)), " ")
		groups[keys] = append(groups[keys], e)
	}
	return slices.Collect(maps.Values(groups))
}

// evalByKey runs a script for each key, all at once.
func (b *Backend) evalByKey(ctx context.Context, entries []*batched) {
	groups := byKey(entries)
	var all sync.WaitGroup
	for _, g := range groups[1:] {
		all.Go(func() { b.eval(ctx, g) })
	}
	b.eval(ctx, groups[0])
	all.Wait()
}

// eval runs a script that is the commands of all entries, and stores its reply to each of them, or its error. If the
// server says that some keys must not be together, as a proxy to several does, or that the user may not access all of
// them, each key gets a script.
func (b *Backend) eval(ctx context.Context, entries []*batched) {
	reply, err := b.evalWindows(ctx, entries)
	if redisclient.AboutSome(err) && len(byKey(entries)) > 1 {
		b.evalByKey(ctx, entries)
		return
	}
	for _, e := range entries {
		answers := ""
		if err == nil {
			size := len(e.Value.keys) * answerSize
			answers = reply[:size]
			reply = reply[size:]
		}
		for c := e; c != nil; c = c.Next {
			c.Value.reply = answers
			c.Value.err = err
		}
	}
}

// evalWindows runs windowsScript for entries, and returns an answer for each of their limits.
func (b *Backend) evalWindows(ctx context.Context, entries []*batched) (reply string, err error) {
	n := 0
	for _, e := range entries {
		n += len(e.Value.keys)
	}
	all := make([]string, 2*n+1)
	keys, args := all[:n], all[n:]
	args[0] = b.time()
	at := 0
	for _, e := range entries {
		copy(keys[at:], e.Value.keys)
		copy(args[at+1:], e.Value.args)
		if e.Times > 1 {
			args[at+1] = strconv.Itoa(e.Times) + e.Value.args[0][1:]
		}
		at += len(e.Value.keys)
	}
	reply, err = b.evalScript(ctx, windowsScript, keys, args)
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

// evalScript runs a script on keys, unless the backend is closed: it sends the digest, and the script only to a server
// that does not have it. Like the client, it may ignore the end of ctx.
func (b *Backend) evalScript(ctx context.Context, s *script, keys, args []string) (string, error) {
	if b.closed.Load() {
		return "", window.ErrClosed
	}
	response, err := b.client.EvalSHA(ctx, s.digest, keys, args)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		response, err = b.client.Eval(ctx, s.source, keys, args)
	}
	return response, redisclient.ReplyError(err, keys...)
}
