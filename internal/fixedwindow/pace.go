package fixedwindow

import (
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
	mu          sync.Mutex // guards the fields below
	most        int        // keys to clean at a time
	keys        int        // that are being cleaned
	least, each time.Duration
	changed     chan struct{} // is closed when keys becomes less or most more
}

func newPace() *pace { return &pace{most: minPace, changed: make(chan struct{})} }

// begin returns how many of n keys can be cleaned now. The caller calls end when they are. For the
// others, it tries again when changed is closed.
func (p *pace) begin(n int) (some int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	some = min(n, max(p.most-p.keys, 0))
	p.keys += some
	return some, p.changed
}

// end is called when n keys are not being cleaned any more.
func (p *pace) end(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys -= n
	p.notify()
}

// notify wakes those that wait, if there is room for keys. The caller holds mu.
func (p *pace) notify() {
	if p.keys < p.most {
		close(p.changed)
		p.changed = make(chan struct{})
	}
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

// bound returns how many keys can be cleaned at a time.
func (p *pace) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}
