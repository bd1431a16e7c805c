package rediswindow

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
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
	waits   map[string]waiting
	cancel  context.CancelFunc // of the subscription; nil if there is none
	stopped bool
}

// waiting is who waits in line, and by when it asks again, unless it has gone without a word.
type waiting struct {
	wake func()
	end  time.Time
}

// linger is how long the subscription goes on without anybody who waits.
const linger = time.Minute

// waitName identifies who waits, as in the messages of the script.
func (b *Backend) waitName(c *window.Claim) string { return b.flightName(c) + " " + c.Process }

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

// expect notes who wants to be woken, and who does not any more.
func (w *wakes) expect(b *Backend, claims []window.Claim) {
	client, ok := b.client.(Subscriber)
	if !ok {
		return
	}
	channel := b.prefix + "wake:" + w.channel(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range claims {
		c := &claims[i]
		switch {
		case c.Process == "":
		case c.Wake != nil && slices.ContainsFunc(c.Wants, func(w window.Want) bool { return w.Wait }):
			if w.waits == nil {
				w.waits = map[string]waiting{}
			}
			w.waits[b.waitName(c)] = waiting{c.Wake, time.Now().Add(c.Lease)}
		case len(w.waits) > 0:
			delete(w.waits, b.waitName(c))
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
	w.mu.Lock()
	wake := w.waits[message].wake
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
	maps.DeleteFunc(w.waits, func(_ string, v waiting) bool { return now.After(v.end) })
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
