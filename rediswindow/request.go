package rediswindow

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// bundle is the ops that are made together, of one limit or of several. Of takes, all are made or none.
type bundle struct {
	ops []op
	err error // why there are no answers
}

type (
	batched = batch.Call[bundle]
	batcher = batch.Batcher[[2]string, bundle]
	entry   = []*batched // equal calls, which are one of the script
)

const (
	// patience is some round trips to a server that is near: until then, another request would take more time of both
	// sides than it saves.
	patience = 150 * time.Microsecond
	// maxLimits is how many limits the entries of a request have, unless a single bundle has more.
	maxLimits = 256
	// maxAlone is how many requests that are not shared a node has in flight.
	maxAlone = 32
)

// node is a server: what it is sent does not wait for others.
type node struct {
	name   string        // host and port; "" if there is only one, or it is not known
	shared *batcher      // of calls on windows, which share requests
	alone  chan struct{} // has an element for each request of another script that is in flight
}

// newNode returns a node, to which nothing has been sent.
func (b *Backend) newNode(name string) *node {
	shared := batch.New(batch.Options[[2]string, bundle]{
		Send: b.send,
		Key: func(c *bundle) ([2]string, bool) {
			o := &c.ops[0]
			return [2]string{o.name, o.text}, len(c.ops) == 1 && o.shares()
		},
		Size:    func(c *bundle) int { return len(c.ops) },
		MaxSize: maxLimits, MaxQueued: b.maxQueued, Patience: patience, Punctual: b.client.Punctual(),
	})
	return &node{name: name, shared: shared, alone: make(chan struct{}, maxAlone)}
}

// retries is how often a bundle is made again because a calendar window could not open: the clock of the store was in
// another one than that of this process. Then the client knows the store's time. The window may end meanwhile.
const retries = 2

// run has the node of its keys make ops together. If it returns an error, because ctx has ended, say, the ops still
// belong to the request.
func (b *Backend) run(ctx context.Context, ops []op) error {
	n, err := b.nodeOf(ops[0].name)
	if err != nil {
		return err
	}
	c := &batched{Value: bundle{ops: ops}}
	again := func(o op) bool { return o.answer.fit == outside }
	for try := 0; ; try++ {
		for i := range ops {
			ops[i].text = b.textOf(&ops[i])
		}
		err = n.do(ctx, c)
		if err != nil || try == retries || !slices.ContainsFunc(ops, again) {
			return err
		}
	}
}

// do makes a bundle once. The error of a request that has failed is that of ctx, if ctx has ended.
func (n *node) do(ctx context.Context, c *batched) error {
	sent, err := n.shared.Do(ctx, c)
	switch {
	case err != nil:
		return notDone(err, sent)
	case c.Value.err != nil && ctx.Err() != nil:
		return notDone(ctx.Err(), true)
	}
	return c.Value.err
}

// send makes a request of bundles, as one script. If the server says that some keys must not be together, as a proxy to
// several does, or that the user may not access all of them, each key has a script of its own, all at once. So it
// is in a cluster, as while a slot moves to another node, a script may have only one key.
func (b *Backend) send(ctx context.Context, entries []entry) {
	cluster, _ := b.client.Cluster() // a client that can't connect any more fails the script, too
	if !cluster {
		err := b.sendTogether(ctx, entries)
		if !redisclient.AboutSome(err) {
			return
		}
	}
	groups := byKey(entries)
	if !cluster && len(groups) == 1 { // the only key was refused
		return
	}
	var all sync.WaitGroup
	for _, g := range groups[1:] {
		all.Go(func() { _ = b.sendTogether(ctx, g) })
	}
	_ = b.sendTogether(ctx, groups[0])
	all.Wait()
}

// byKey groups entries that have the same keys.
func byKey(entries []entry) [][]entry {
	groups := map[string][]entry{}
	for _, e := range entries {
		var names []string
		for i := range e[0].Value.ops {
			names = append(names, e[0].Value.ops[i].name)
		}
		keys := strings.Join(slices.Compact(names), " ")
		groups[keys] = append(groups[keys], e)
	}
	return slices.Collect(maps.Values(groups))
}

//go:embed lua/windows.lua
var windowsLua string

// windowsScript makes calls. See there for its arguments and what it returns.
var windowsScript = newScript(windowsLua)

// sendTogether runs a script that is the calls of entries, and stores the answers in them, or its error.
func (b *Backend) sendTogether(ctx context.Context, entries []entry) error {
	keys := make([]string, 0, len(entries))
	args := append(make([]string, 0, 1+len(entries)), b.time())
	for _, e := range entries {
		ops := e[0].Value.ops
		for i := range ops {
			text := ops[i].text
			if len(e) > 1 { // equal ones of one op
				text = strconv.Itoa(len(e)) + text
			}
			if ops[i].verb == take && i < len(ops)-1 { // the next one belongs to the same take
				text = "+" + text
			}
			keys = append(keys, ops[i].name)
			args = append(args, text)
		}
	}
	reply, err := b.eval(ctx, windowsScript, keys, args)
	if err == nil && len(reply) != len(keys)*answerSize {
		err = fmt.Errorf("%w: the script returned %d bytes for %d limits", window.ErrUnavailable, len(reply), len(keys))
	}
	for _, e := range entries {
		for rank, c := range e {
			c.Value.err = err
			for i := 0; i < len(c.Value.ops) && err == nil; i++ {
				c.Value.ops[i].answer = readAnswer(reply[i*answerSize:], rank)
			}
		}
		if err == nil {
			reply = reply[len(e[0].Value.ops)*answerSize:]
		}
	}
	return err
}
