package rediswindow

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/window"
)

// Subscriber is a [Client] that can subscribe to a channel. With one that can't, those who wait for places in
// flight ask every eighth of a lease at least, and are not told when one becomes free.
type Subscriber interface {
	Client
	// Subscribe calls received with the messages of a channel until ctx ends, or the client or the connection is
	// closed. It returns why.
	Subscribe(ctx context.Context, channel string, received func(message string)) error
}

// wakes are those who wait in line for places in flight. While there are any, the backend subscribes to a channel
// of its own, to which scripts publish who is first in line when there is room.
type wakes struct {
	id string // of the channel

	mu      sync.Mutex // guards what follows
	asking  []*asking
	waits   map[waiter]waiting
	cancel  context.CancelFunc // of the subscription; nil if there is none
	stopped bool
}

// asking is claims that are being made, on the hashes of these names: they may wait in line before their answer is there.
type asking struct {
	claims []window.Claim
	names  []string
}

// waiter is a process, and the hash of what it waits for.
type waiter struct{ name, process string }

// waiting is how one that waits in line is woken, and by when it asks again, unless it has gone without a word.
type waiting struct {
	wake func()
	end  time.Time
}

// linger is how long the subscription goes on without anybody who waits.
const linger = time.Minute

// channel returns the end of the name of the backend's channel, or nothing if the client can't subscribe.
func (w *wakes) channel(b *Backend) string {
	if _, ok := b.client.(Subscriber); !ok {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id == "" {
		w.id = rand.Text()[:16]
	}
	return w.id
}

// expect notes claims that are about to be made on the hashes of these names. The caller calls answered when they have been.
func (w *wakes) expect(b *Backend, claims []window.Claim, names []string) *asking {
	client, ok := b.client.(Subscriber)
	if !ok {
		return nil
	}
	a, channel := &asking{claims, names}, b.prefix+"wake:"+w.channel(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking = append(w.asking, a)
	waits := func(c window.Claim) bool { return mayWait(&c, nil) }
	if w.cancel == nil && !w.stopped && slices.ContainsFunc(claims, waits) {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		go w.listen(ctx, client, channel)
	}
	return a
}

// answered notes who waits in line after claims have been made, and who does not any more.
func (w *wakes) answered(a *asking, places []window.Places) {
	if a == nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.asking, a)
	w.asking = slices.Delete(w.asking, i, i+1)
	for i := range a.claims {
		c := &a.claims[i]
		switch {
		case mayWait(c, places[i].Tokens):
			if w.waits == nil {
				w.waits = map[waiter]waiting{}
			}
			w.waits[waiter{strings.Clone(a.names[i]), c.Process}] = waiting{c.Wake, now.Add(c.Lease)}
		case len(w.waits) > 0:
			delete(w.waits, waiter{a.names[i], c.Process})
		}
	}
}

// mayWait reports whether a want of a claim may wait in line, unless it was granted.
func mayWait(c *window.Claim, tokens []uint64) bool {
	if c.Wake == nil {
		return false
	}
	for i := range c.Wants {
		if c.Wants[i].Wait && (tokens == nil || tokens[i] == 0) {
			return true
		}
	}
	return false
}

// listen subscribes as long as somebody waits.
func (w *wakes) listen(ctx context.Context, client Subscriber, channel string) {
	pauses := backoff.New(10*time.Millisecond, time.Second)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var idle *time.Timer
	idle = time.AfterFunc(linger, func() {
		if w.needed() {
			idle.Reset(linger)
		} else {
			cancel()
		}
	})
	defer idle.Stop()
	for {
		client.Subscribe(ctx, channel, w.wake)
		if ctx.Err() != nil || !w.needed() || pauses.Wait(ctx, nil) != nil {
			break
		}
		w.wakeAll() // messages may have been lost
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
		w.cancel = nil
	}
}

// wake wakes the one that a message names.
func (w *wakes) wake(message string) {
	end := strings.LastIndexByte(message, ' ')
	if end < 0 {
		return
	}
	named := waiter{message[:end], message[end+1:]}
	w.mu.Lock()
	wake := w.waits[named].wake
	for _, a := range w.asking {
		for i := range a.claims {
			if named == (waiter{a.names[i], a.claims[i].Process}) {
				wake = a.claims[i].Wake
			}
		}
	}
	w.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (w *wakes) wakeAll() {
	w.mu.Lock()
	all := make([]func(), 0, len(w.waits))
	for _, v := range w.waits {
		all = append(all, v.wake)
	}
	for _, a := range w.asking {
		for i := range a.claims {
			if a.claims[i].Wake != nil {
				all = append(all, a.claims[i].Wake)
			}
		}
	}
	w.mu.Unlock()
	for _, wake := range all {
		wake()
	}
}

func (w *wakes) needed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(w.waits, func(_ waiter, v waiting) bool { return now.After(v.end) })
	return len(w.waits)+len(w.asking) > 0 && !w.stopped
}

// stop ends the subscription for good.
func (w *wakes) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped = true; w.cancel != nil {
		w.cancel()
	}
}
