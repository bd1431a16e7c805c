package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// ways are how messages travel.
type ways struct {
	shortest, longest time.Duration // of a way
	lose              float64       // the part of the requests that are lost, and of the answers
	imprecise         time.Duration // how much too late the ends of windows may be
}

// network is a backend that is some distance away, whose answers tell what was true when it answered. The tests use it
// in virtual time.
type network struct {
	window.Backend // where windows are kept
	ways
	answer time.Duration                                                     // how much longer takes take
	took   func(ctx context.Context, limit, n uint64, w window.Window) error // before the answer; or nil
	resets func()                                                            // before a Reset; or nil
	broken atomic.Bool                                                       // everything is lost
	takes  atomic.Int64
	seen   *windows // or nil
}

var errLost = errors.New("the connection is lost")

// way is the way of a request or an answer.
func (n *network) way(ctx context.Context) error {
	d := n.shortest
	if n.longest > n.shortest {
		d += rand.N(n.longest - n.shortest)
	}
	if n.broken.Load() || rand.Float64() < n.lose {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d + 10*n.longest):
			return errLost
		}
	}
	time.Sleep(d)
	return nil
}

// blur makes the end of a window as imprecise as it may be.
func (n *network) blur(w *window.Window) {
	if n.imprecise > 0 && w.ID != 0 {
		late := rand.N(n.imprecise)
		w.ExpiresAt, w.Left = w.ExpiresAt.Add(late), w.Left+late
	}
}

func (n *network) Check(window.Limit) (window.Traits, error) {
	return window.Traits{Precision: n.imprecise}, nil
}

func (n *network) Take(ctx context.Context, key string, l window.Limit, k uint64) (w window.Window, err error) {
	n.takes.Add(1)
	if err := n.way(ctx); err != nil {
		return w, err
	}
	w, err = n.Backend.Take(context.WithoutCancel(ctx), key, l, k)
	if err == nil && !w.Refused && n.seen != nil {
		n.seen.add(w, l.Scale)
	}
	n.blur(&w)
	if n.took != nil {
		err = n.took(ctx, l.Max, k, w)
	}
	time.Sleep(n.answer)
	if lost := n.way(ctx); lost != nil {
		return window.Window{}, lost
	}
	return w, err
}

func (n *network) Reset(ctx context.Context, key string, l window.Limit) error {
	if n.resets != nil {
		n.resets()
	}
	return n.Backend.Reset(ctx, key, l)
}

func (n *network) GiveBack(ctx context.Context, key string, l window.Limit, k uint64, id int64) (ok bool, err error) {
	if err := n.way(ctx); err != nil {
		return false, err
	}
	ok, err = n.Backend.GiveBack(context.WithoutCancel(ctx), key, l, k, id)
	if lost := n.way(ctx); lost != nil {
		return false, lost
	}
	return ok, err
}

// windows are the windows of one key that were open, and how many hits were allowed in each.
type windows struct {
	mu    sync.Mutex // guards what follows
	all   []span
	stray int // hits that were allowed while no window was open
}

type span struct {
	id         int64
	start, end time.Time
	allowed    uint64
}

// add adds a window that was just taken from.
func (ws *windows) add(w window.Window, scale time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 || ws.all[len(ws.all)-1].id != w.ID {
		ws.all = append(ws.all, span{id: w.ID, start: w.ExpiresAt.Add(-scale), end: w.ExpiresAt})
	}
}

// allow counts a hit of n that was allowed. If it got a place of a block, it was allowed now: virtual time has not passed
// since the clock was read. Otherwise the backend has allowed it, in the window that it says.
func (ws *windows) allow(n uint64, w window.Window, asked bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	at := time.Now()
	for i := range ws.all {
		s := &ws.all[i]
		if !asked && !at.Before(s.start) && at.Before(s.end) || asked && s.id == w.ID {
			s.allowed += n
			return
		}
	}
	ws.stray++
}
