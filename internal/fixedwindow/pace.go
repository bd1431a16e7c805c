package fixedwindow

import (
	"context"
	"sync"
	"time"
)

const (
	// minPace is how many keys can always be cleaned at a time, however slow the server is.
	minPace = 16
	// paceParts is in how many parts of a guard the keys that are cleaned at a time are looked up once,
	// at two requests each. What follows a lookup has to be written within half a guard.
	paceParts = 4
)

// pace bounds how many keys whose guards are about the same are cleaned at a time on a link: as many
// as the server can look up in a part of the guard. If there were more, all actions would be too late,
// and no record would be removed until it expires.
type pace struct {
	turn chan struct{} // has an element while a goroutine waits for keys to become less, or most more

	mu          sync.Mutex // guards the fields below
	most        int        // keys to clean at a time
	keys        int        // that are being cleaned
	least, each time.Duration
	changed     chan struct{} // is closed when keys becomes less or most more
}

func newPace() *pace {
	return &pace{turn: make(chan struct{}, 1), most: minPace, changed: make(chan struct{})}
}

// begin waits until some of n keys can be cleaned, and returns how many. The caller calls end when
// they are.
func (p *pace) begin(ctx context.Context, n int) (some int, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for {
		p.mu.Lock()
		some, changed := min(n, p.most-p.keys), p.changed
		if some > 0 {
			p.keys += some
		}
		p.mu.Unlock()
		if some > 0 {
			return some, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// end is called when n keys are not being cleaned any more.
func (p *pace) end(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys -= n
	p.notify()
}

// notify wakes the goroutine that has the turn. The caller holds mu.
func (p *pace) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// looked is told how long a lookup of n keys took. The least of these times is taken for that of the
// network.
func (p *pace) looked(n int, took, guard time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 || took < p.least {
		p.least = took
	}
	p.each += ((took-p.least)/time.Duration(n) - p.each) / 2
	most := min(2*p.most, chunkSize*maxChunks)
	if p.each > 0 {
		most = min(most, int(guard/paceParts/p.each))
	}
	p.most = max(most, minPace)
	p.notify()
}

// exceeded reports whether n keys are far too many.
func (p *pace) exceeded(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n/2 > p.most
}
