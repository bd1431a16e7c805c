package rediswindow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

// node is a server: what it is sent does not wait for others.
type node struct {
	name    string // host and port; "" if there is only one, or it is not known
	batcher *batcher
	room    chan struct{} // for requests that are not batched
}

// maxAloneInFlight is how many requests that are not batched a node has in flight.
const maxAloneInFlight = 32

// nodes are the servers of a client: one, or those of a cluster.
type nodes struct {
	slots atomic.Pointer[[slots]*node] // the node of each slot; nil: not known yet

	mu     sync.Mutex // guards what follows
	byName map[string]*node
	asked  time.Time // when the slots were last asked for
	asking bool
}

// The slots of a cluster are asked for again after topologyAge, in the background. If they have moved by then, calls
// still reach them: the client knows better. They only share requests, and the circuit, of another node.
const (
	topologyAge     = 2 * time.Second
	topologyTimeout = time.Second
)

// nodeOf returns the node of a hash. Nodes that are not known yet are one. The error says that nothing can be sent.
func (b *Backend) nodeOf(hash string) (*node, error) {
	cluster, err := b.cluster()
	if err != nil {
		return nil, err
	}
	if !cluster {
		return b.single, nil
	}
	if b.nodes.due() {
		go b.askForSlots(context.Background())
	}
	return b.nodeOfSlot(int(slotOf([]byte(b.tagOf(hash))))), nil
}

// nodeOfSlot returns the node of a slot, as far as it is known.
func (b *Backend) nodeOfSlot(slot int) *node {
	if known := b.nodes.slots.Load(); known != nil && known[slot] != nil {
		return known[slot]
	}
	return b.single
}

// Part returns the address of the node that keeps a key, or "" if there is only one, or it is not known. It is for
// package throttr, which has a circuit breaker for each.
func (b *Backend) Part(key string) string {
	if cluster, err := b.client.Cluster(); err != nil || !cluster {
		return ""
	}
	return b.nodeOfSlot(slotOfKey(key)).name
}

func (b *Backend) newNode(name string) *node {
	return &node{name: name, room: make(chan struct{}, maxAloneInFlight), batcher: batch.New(batch.Options[part, call]{
		Send:    b.send,
		Key:     (*call).shared,
		Size:    func(c *call) int { return len(c.asks) },
		MaxSize: maxLimits, MaxQueued: b.maxQueued,
	})}
}

// due reports whether the caller is to ask for the slots.
func (n *nodes) due() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking || time.Since(n.asked) < topologyAge {
		return false
	}
	n.asking = true
	return true
}

// slotsScript returns the slots of a cluster: a line for each range, with the first, the last, and the address of the
// primary.
var slotsScript = newScript(`local lines = {}
for i, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
  lines[i] = string.format('%.0f %.0f %s:%.0f', range[1], range[2], range[3][1], range[3][2])
end
return table.concat(lines, '\n')`)

// askForSlots asks a server which node has which slots, and then others, because that one may hang.
func (b *Backend) askForSlots(ctx context.Context) (err error) {
	for range 4 {
		attempt, cancel := context.WithTimeout(ctx, topologyTimeout)
		var text string
		text, err = b.evalOnSlot(attempt, slotsScript, rand.IntN(slots))
		cancel()
		if err == nil {
			err = b.learn(text)
			break
		}
	}
	b.nodes.mu.Lock()
	defer b.nodes.mu.Unlock()
	b.nodes.asking = false
	b.nodes.asked = time.Now()
	return err
}

// evalOnSlot runs a script on the node of a slot of a cluster.
func (b *Backend) evalOnSlot(ctx context.Context, s *script, slot int, args ...string) (string, error) {
	keys := []string{b.prefix + "{" + slotTags()[slot] + "}" + version}
	return b.alone(ctx, b.single, func(ctx context.Context) (string, error) { return b.eval(ctx, s, keys, args) })
}

// learn reads what slotsScript returns.
func (b *Backend) learn(text string) error {
	var known [slots]*node
	b.nodes.mu.Lock()
	defer b.nodes.mu.Unlock()
	for line := range strings.Lines(text) {
		var from, to int
		var name string
		if _, err := fmt.Sscan(line, &from, &to, &name); err != nil || from < 0 || to >= slots {
			return fmt.Errorf("%w: CLUSTER SLOTS returned %q", window.ErrUnavailable, line)
		}
		n := b.nodes.byName[name]
		if n == nil {
			n = b.newNode(name)
			b.nodes.byName[name] = n
		}
		for slot := from; slot <= to; slot++ {
			known[slot] = n
		}
	}
	b.nodes.slots.Store(&known)
	return nil
}

// primaries returns a slot of each node of a cluster.
func (b *Backend) primaries(ctx context.Context) (all []int, err error) {
	if err := b.askForSlots(ctx); err != nil {
		return nil, err
	}
	var last *node
	seen := map[*node]bool{}
	for slot, n := range b.nodes.slots.Load() {
		if n != last && n != nil && !seen[n] {
			all = append(all, slot)
			seen[n] = true
		}
		last = n
	}
	return all, nil
}

// alone makes a request that is not batched. It returns when ctx ends, and then drops what request returns.
func (b *Backend) alone(ctx context.Context, n *node, request func(ctx context.Context) (string, error)) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", notDone(err, false)
	}
	select {
	case n.room <- struct{}{}:
	case <-ctx.Done():
		return "", notDone(ctx.Err(), false)
	}
	var reply string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { <-n.room }()
		if b.closed.Load() {
			err = window.ErrClosed
			return
		}
		reply, err = request(context.WithoutCancel(ctx))
	}()
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
		return "", notDone(ctx.Err(), true)
	}
}

// requestAlone makes a request of its own, for a key.
func (b *Backend) requestAlone(ctx context.Context, key string, request func(ctx context.Context) (string, error)) (string, error) {
	n, err := b.nodeOf(b.nameOf(key))
	if err != nil {
		return "", err
	}
	return b.alone(ctx, n, request)
}

// cluster reports whether the client is one of a cluster. The error says that nothing can be sent.
func (b *Backend) cluster() (bool, error) {
	if b.closed.Load() {
		return false, window.ErrClosed
	}
	return b.client.Cluster()
}
