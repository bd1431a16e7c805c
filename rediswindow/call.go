package rediswindow

import (
	"context"
	"fmt"
	"sync"

	"github.com/throttr-go/throttr/internal/breaker"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/internal/redisreply"
	"github.com/throttr-go/throttr/window"
)

// The bounds of requests, beside that of [WithMaxQueued]. In a cluster, maxInFlight is that of each slot.
const (
	maxLimits   = 254 // of all calls of a request: its bytes have indices and numbers of up to 254
	maxInFlight = 8   // requests
)

// verb is what a call asks of a limit. See lua/windows.lua.
type verb byte

const (
	take verb = iota
	count
	peek
	back
	set
	reset
	deleteAll
)

// policy is what a call asks, and of which limit, and no Policy of package throttr. Calls that are equal but for their callers have the same
// policies and keys.
type policy struct {
	verb   verb
	remove bool // back: whether a window that is empty then is removed
	limit  window.Limit
	n      uint64
	id     int64  // back: of the take
	scales string // deleteAll: as the script expects them
}

// part is what a call asks of one key.
type part struct {
	key string
	policy
}

// call is a call of a method: one part, or several of a TakeAll.
type call struct {
	parts   []part
	windows []window.Window // one for each part that asks for one
	n       int             // how many of it were granted or done; of deleteAll, how many limits had something
	id      int64           // the first of the IDs of windows that the request has opened
	err     error

	// equals is the index of the equals of the request that the call is one of, and rank says how many of them are
	// before it.
	equals, rank int
}

type (
	combined = coalesce.Call[call]
	combiner = coalesce.Combiner[call]
)

// newCombiner returns what lets calls share requests. In a cluster, a request accesses one slot.
func (b *Backend) newCombiner() *combiner {
	return coalesce.NewCombiner(coalesce.CombinerOptions[call]{
		Send: b.send, Partitions: b.partitions(), MaxSize: maxLimits, MaxInFlight: maxInFlight, MaxQueued: b.maxQueued,
	})
}

// alone is a call with a request of its own.
type alone struct {
	request  func(ctx context.Context) (string, error)
	response string
	err      error
}

// newAlone returns what bounds calls with requests of their own.
func (b *Backend) newAlone() *coalesce.Combiner[alone] {
	return coalesce.NewCombiner(coalesce.CombinerOptions[alone]{
		Send: func(ctx context.Context, calls []*coalesce.Call[alone]) {
			v := &calls[0].Value
			if b.closed.Load() {
				v.err = window.ErrClosed
				return
			}
			v.response, v.err = v.request(ctx)
		},
		Partitions: b.partitions(), MaxSize: 1, MaxInFlight: maxInFlight, MaxQueued: b.maxQueued,
	})
}

// requestAlone makes a request of its own, for a key. It returns when ctx ends, and then drops what request returns.
func (b *Backend) requestAlone(ctx context.Context, key string, request func(ctx context.Context) (string, error)) (string, error) {
	partition, err := b.partition(key)
	if err != nil {
		return "", err
	}
	c := b.alone().Get()
	c.Value = alone{request: request}
	if sent, err := b.alone().Do(ctx, partition, c); err != nil {
		return "", notDone(err, sent)
	}
	response, err := c.Value.response, c.Value.err
	c.Value = alone{}
	b.alone().Put(c)
	return response, err
}

// notDone returns the error of a call that was given up.
func notDone(err error, sent bool) error {
	if sent {
		return fmt.Errorf("%w; it may have been counted", err)
	}
	return fmt.Errorf("%w; it was not sent", err)
}

// partitions returns how many partitions of calls there are: one, or in a cluster one for each slot.
func (b *Backend) partitions() int {
	if cluster, _ := b.client.Cluster(); cluster {
		return slots
	}
	return 1
}

// partition returns the partition of a key. The error says that nothing can be sent.
func (b *Backend) partition(key string) (int, error) {
	cluster, err := b.cluster()
	if err != nil || !cluster {
		return 0, err
	}
	return slotOfKey(key), nil
}

// cluster reports whether the client is one of a cluster. The error says that nothing can be sent.
func (b *Backend) cluster() (bool, error) {
	if b.closed.Load() {
		return false, window.ErrClosed
	}
	return b.client.Cluster()
}

// do has a call sent that Get has returned and that was filled in, and returns its error. If it was answered, the caller
// returns it with end. Otherwise, it may still be under way.
func (b *Backend) do(ctx context.Context, c *combined) (answered bool, err error) {
	partition, err := b.partition(c.Value.parts[0].key)
	if err != nil {
		return false, err
	}
	c.Size = len(c.Value.parts)
	if sent, err := b.combiner().Do(ctx, partition, c); err != nil {
		return false, notDone(err, sent)
	}
	return true, c.Value.err
}

// end keeps a call for another one.
func (b *Backend) end(c *combined) {
	v := &c.Value
	clear(v.parts)
	*v = call{parts: v.parts[:0], windows: v.windows[:0]}
	b.combiner().Put(c)
}

// one makes a call of one part. It returns the window that it asks for, and how many were granted or done.
func (b *Backend) one(ctx context.Context, key string, p policy) (w window.Window, n int, err error) {
	if _, err := b.cluster(); err != nil { // it may not be known yet how many partitions there are
		return w, 0, err
	}
	c := b.combiner().Get()
	c.Value.parts = append(c.Value.parts, part{key, p})
	answered, err := b.do(ctx, c)
	if !answered {
		return w, 0, err
	}
	if err == nil {
		n = c.Value.n
		if len(c.Value.windows) > 0 {
			w = c.Value.windows[0]
		}
	}
	b.end(c)
	return w, n, err
}

// send sends calls, for the combiner, which bounds its requests itself. If their keys differ, it makes a request for
// each of them in a cluster, because while a slot moves to another node, a script may have only one key. That is
// rare: the keys share a slot by chance. It does so as well if a server says that they are not in one slot: what
// seems to be a server may be a proxy to several.
func (b *Backend) send(ctx context.Context, calls []*combined) {
	differ := len(calls) > 1 && severalKeys(calls[0])
	for _, c := range calls[1:] {
		differ = differ || c.Value.parts[0].key != calls[0].Value.parts[0].key || severalKeys(c)
	}
	cluster, err := b.cluster()
	if err == nil && !(differ && cluster) {
		err = b.request(ctx, calls)
		if err == nil || !differ || !redisreply.HasCode(err, "CROSSSLOT") {
			fail(calls, err)
			return
		}
	} else if err != nil {
		fail(calls, err)
		return
	}
	byKey := map[string][]*combined{}
	var all sync.WaitGroup
	for _, c := range calls {
		if severalKeys(c) {
			one := []*combined{c}
			all.Go(func() { fail(one, b.request(ctx, one)) })
			continue
		}
		key := c.Value.parts[0].key
		byKey[key] = append(byKey[key], c)
	}
	for _, calls := range byKey {
		all.Go(func() { fail(calls, b.request(ctx, calls)) })
	}
	all.Wait()
}

// severalKeys reports whether a call has several keys.
func severalKeys(c *combined) bool {
	for _, p := range c.Value.parts[1:] {
		if p.key != c.Value.parts[0].key {
			return true
		}
	}
	return false
}

// fail has calls fail, unless err is nil.
func fail(calls []*combined, err error) {
	if err == nil {
		return
	}
	for _, c := range calls {
		c.Value.err = err
	}
}

// circuitParts is how many circuit breakers a backend has on a cluster: each is that of a range of slots,
// which are mostly those of one node.
const circuitParts = 16

func init() {
	inside.Add(func(b *Backend) any { return breaker.Parts{N: circuitParts, Of: b.circuitPart} })
	inside.Add(func(*Backend) any { return deadline.Unkept{} })
}

// circuitPart returns the part of a key, which is 0 if there is no cluster.
func (b *Backend) circuitPart(key string) int {
	if cluster, err := b.client.Cluster(); err != nil || !cluster {
		return 0
	}
	return slotOfKey(key) * circuitParts / slots
}
