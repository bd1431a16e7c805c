package rediswindow

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/batch"
	"github.com/throttr-go/throttr/window"
)

// node is a server: what it is sent does not wait for others.
type node struct {
	name   string        // host and port; "" if there is only one, or it is not known
	shared *batcher      // of calls on windows, which share requests
	alone  chan struct{} // has an element for each request of another script that is in flight
}

// newNode returns a node, to which nothing has been sent.
func (b *Backend) newNode(name string) *node {
	shared := batch.New(batch.Options[[2]string, call]{
		Send: b.send,
		Key: func(c *call) ([2]string, bool) {
			o := &c.ops[0]
			return [2]string{o.name, o.text}, len(c.ops) == 1 && o.shares()
		},
		Size:    func(c *call) int { return len(c.ops) },
		MaxSize: maxLimits, MaxQueued: b.maxQueued, Patience: patience, Punctual: b.client.Punctual(),
	})
	return &node{name: name, shared: shared, alone: make(chan struct{}, maxAlone)}
}

// topology has the node of each slot of a cluster.
type topology [slots]*node

// The slots of a cluster are asked for again after topologyAge, in the background. If they have moved by then, calls
// still reach them: the client knows better. They only share requests, and the circuit, of another node.
const (
	topologyAge     = 2 * time.Second
	topologyTimeout = time.Second
)

// nodeOf returns the node of the hash with a name. Nodes that are not known yet are one. The error says that nothing
// can be sent.
func (b *Backend) nodeOf(name string) (*node, error) {
	cluster, err := b.cluster()
	if err != nil {
		return nil, err
	}
	if !cluster {
		return b.single, nil
	}
	at := b.askAt.Load()
	if time.Now().UnixNano() >= at && b.askAt.CompareAndSwap(at, math.MaxInt64) { // so that nobody else asks meanwhile
		go b.askForSlots(context.Background())
	}
	return b.nodeOfSlot(int(slotOf([]byte(b.tagOf(name))))), nil
}

// nodeOfSlot returns the node of a slot, as far as it is known.
func (b *Backend) nodeOfSlot(slot int) *node {
	if known := b.topology.Load(); known != nil && known[slot] != nil {
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

// slotsScript returns the slots of a cluster: a line for each range, with the first, the last, and the address of the
// primary. A cluster may tell no host: clients then use the one that they know. The script fails on a server that is
// none of a cluster, although its client is: so it is with go-redis behind a Sentinel, if it reads of replicas.
var slotsScript = newScript(`local lines = {}
for i, range in ipairs(redis.call('CLUSTER', 'SLOTS')) do
  lines[i] = string.format('%.0f %.0f %s:%.0f', range[1], range[2], range[3][1] or '', range[3][2])
end
return table.concat(lines, '\n')`)

// askForSlots asks a server which node has which slots, and then others, as that one may hang. The next call after
// topologyAge does so again.
func (b *Backend) askForSlots(ctx context.Context) {
	defer func() { b.askAt.Store(time.Now().Add(topologyAge).UnixNano()) }()
	for range 4 {
		attempt, cancel := context.WithTimeout(ctx, topologyTimeout)
		text, err := b.evalAlone(attempt, slotsScript, []string{b.keyOfSlot(rand.IntN(slots))})
		cancel()
		if err == nil {
			b.learn(text)
			return
		}
	}
}

// keyOfSlot returns a key of Redis in a slot of a cluster that no backend uses.
func (b *Backend) keyOfSlot(slot int) string {
	return b.prefix + "{" + slotTags()[slot] + "}" + version
}

// learn reads what slotsScript returns. Nodes that were known before stay what they are.
func (b *Backend) learn(text string) {
	var known topology
	for line := range strings.Lines(text) {
		var from, to int
		var name string
		if _, err := fmt.Sscan(line, &from, &to, &name); err != nil || from < 0 || to >= slots {
			return // this is no answer
		}
		n, _ := b.nodes.LoadOrStore(name, b.newNode(name))
		for slot := from; slot <= to; slot++ {
			known[slot] = n.(*node)
		}
	}
	b.topology.Store(&known)
}

// cluster reports whether the client is one of a cluster. The error says that nothing can be sent.
func (b *Backend) cluster() (bool, error) {
	if b.closed.Load() {
		return false, window.ErrClosed
	}
	return b.client.Cluster()
}
