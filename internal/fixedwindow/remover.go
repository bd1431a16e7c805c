package fixedwindow

import (
	"context"
	"fmt"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/sweep"
)

// Remover removes the records of one server that a [Rule] has decided to remove. Those of slots
// take several lookups and actions, which go out on a link.
type Remover[T codec.Value] struct {
	link     *link[T]
	layouts  layouts
	requests int // the most requests of a call
}

var _ sweep.Remover = (*Remover[uint16])(nil)

// NewRemover returns a Remover. Close it after use.
func NewRemover[T codec.Value](s Server[T], calls *conn.CallPool[T], maxInFlight int) *Remover[T] {
	return &Remover[T]{link: newLink(s, calls, nil), requests: max(1, min(cleanBatch, maxInFlight))}
}

// Remove implements [sweep.Remover].
func (r *Remover[T]) Remove(ctx context.Context, targets []string) (removed int, err error) {
	var cleanings []*cleaning[T]
	buckets := r.link.calls.Get() // removes the records of aligned windows
	for _, t := range targets {
		n, ok := ParseName([]byte(t))
		if !ok {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		if n.Aligned {
			conn.Add(buckets, codec.Purge{Key: []byte(t)})
			continue
		}
		l, ok := r.layouts.get(n.Scale, maxValue[T]())
		if !ok {
			return 0, fmt.Errorf("fixedwindow: %q is not a target", t)
		}
		c := &cleaning[T]{records: recordsOf[T](l, n.slotNames()), begin: func() {}}
		c.decide = func(h slot.History) slot.Action { return l.bands.Clean(h, l.bands.Watch) }
		cleanings = append(cleanings, c)
	}
	removed, err = r.removeBuckets(ctx, buckets)
	if err != nil {
		return removed, err
	}
	c := cleaner[T]{link: r.link, requests: r.requests}
	err = c.clean(ctx, cleanings)
	for _, k := range cleanings {
		removed += k.removed
	}
	return removed, err
}

// removeBuckets sends a call of PURGEs and returns how many of them have removed a record.
func (r *Remover[T]) removeBuckets(ctx context.Context, cl *conn.Call[T]) (removed int, err error) {
	if cl.Len() == 0 {
		r.link.calls.Put(cl)
		return 0, nil
	}
	done, _, err := r.link.server.Do(ctx, cl)
	if err == nil {
		for _, reply := range cl.Replies {
			if reply.OK {
				removed++
			}
		}
	}
	if done {
		r.link.calls.Put(cl)
	}
	return removed, err
}

// Close ends the connection.
func (r *Remover[T]) Close() { r.link.close() }
