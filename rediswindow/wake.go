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
	waits   map[waiter]waiting
	cancel  context.CancelFunc // of the subscription; nil if there is none
	stopped bool
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

// expect notes who wants to be woken, and who does not any more, of claims on the hashes of these names.
func (w *wakes) expect(b *Backend, claims []window.Claim, names []string) {
	client, ok := b.client.(Subscriber)
	if !ok {
		return
	}
	channel, now := b.prefix+"wake:"+w.channel(b), time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range claims {
		c := &claims[i]
		switch {
		case c.Process == "":
		case c.Wake != nil && slices.ContainsFunc(c.Wants, func(w window.Want) bool { return w.Wait }):
			if w.waits == nil {
				w.waits = map[waiter]waiting{}
			}
			w.waits[waiter{names[i], c.Process}] = waiting{c.Wake, now.Add(c.Lease)}
		case len(w.waits) > 0:
			delete(w.waits, waiter{names[i], c.Process})
		}
	}
	if len(w.waits) > 0 && w.cancel == nil && !w.stopped {
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		go w.listen(ctx, client, channel)
	}
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
	w.mu.Lock()
	wake := w.waits[waiter{message[:end], message[end+1:]}].wake
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
	return len(w.waits) > 0 && !w.stopped
}

// stop ends the subscription for good.
func (w *wakes) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped = true; w.cancel != nil {
		w.cancel()
	}
}
