package rediswindow

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

// wakes are those who wait in line for places in flight. While there are any, the backend subscribes to a channel
// of its own, to which scripts publish who is first in line when there is room.
type wakes struct {
	client Subscriber      // nil if the client can't subscribe
	prefix string          // of channels
	id     string          // of the channel; "" if the client can't subscribe
	ctx    context.Context // of subscriptions
	stop   context.CancelFunc

	mu      sync.Mutex        // guards what follows
	waits   map[string]waiter // by message; also those whose claim is being made
	listens bool              // there is a subscription, or soon another one
}

// waiter is how one that waits in line is woken, and by when it asks again, unless it has gone without a word.
type waiter struct {
	wake func()
	end  time.Time
}

// linger is how long the subscription goes on without anybody who waits, at most.
const linger = time.Minute

// longestPause is how long there is no subscription after one that has ended, at most.
const longestPause = time.Second

// newWakes returns the wakes of a client that nobody waits for.
func newWakes(client Client, prefix string) *wakes {
	w := &wakes{prefix: prefix + "wake:", waits: map[string]waiter{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if s, ok := client.(Subscriber); ok {
		w.client = s
		w.id = rand.Text()[:16]
	}
	return w
}

// note notes which claims on the hashes of these names may wait in line. It is called before they are made, and after.
func (w *wakes) note(claims []window.Claim, names []string, places []window.Places) {
	if w.client == nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range claims {
		c := &claims[i]
		message := names[i] + " " + c.Process // of the script that wakes it
		if !mayWait(c, places[i].Tokens) {
			delete(w.waits, message)
			continue
		}
		w.waits[message] = waiter{c.Wake, now.Add(c.Lease)}
		if !w.listens {
			w.listens = true
			go w.listen()
		}
	}
}

// mayWait reports whether a want of a claim may wait in line, unless it was granted.
func mayWait(c *window.Claim, tokens []uint64) bool {
	for i := range c.Wants {
		if c.Wake != nil && c.Wants[i].Wait && (tokens == nil || tokens[i] == 0) {
			return true
		}
	}
	return false
}

// listen subscribes as long as somebody waits, and looks for that after each linger.
func (w *wakes) listen() {
	pauses := outage.NewBackoff(10*time.Millisecond, longestPause)
	for w.needed() {
		begun := time.Now()
		lingering, cancel := context.WithTimeout(w.ctx, linger)
		_ = w.subscribe(lingering)
		failed := lingering.Err() == nil
		cancel()
		if time.Since(begun) > longestPause { // there was one
			pauses.Reset()
		}
		if failed {
			_ = pauses.Wait(w.ctx, nil)
		}
	}
}

// subscribe subscribes until ctx ends, or the subscription does.
func (w *wakes) subscribe(ctx context.Context) (err error) {
	defer recovered(&err)
	return w.client.Subscribe(ctx, w.prefix+w.id, w.received)
}

// received wakes the one that a message names. If the subscription has just been confirmed, it wakes all: messages that
// were published before are lost.
func (w *wakes) received(message string) {
	w.mu.Lock()
	var woken []waiter
	if message == "" {
		woken = slices.Collect(maps.Values(w.waits))
	} else if v, ok := w.waits[message]; ok {
		woken = append(woken, v)
	}
	w.mu.Unlock()
	for _, v := range woken {
		v.wake()
	}
}

// needed reports whether anybody waits. Otherwise there is no subscription any more: whoever comes begins another one.
func (w *wakes) needed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(w.waits, func(_ string, v waiter) bool { return now.After(v.end) })
	w.listens = len(w.waits) > 0 && w.ctx.Err() == nil
	return w.listens
}
