package fixedwindow

import (
	"sync"
	"time"
)

const (
	// minPace is how many keys can always be cleaned at a time, however slow the server is, and maxPace how many at
	// most.
	minPace = 16
	maxPace = 1 << 14
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
	least, each time.Duration
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
	most := min(2*p.most, maxPace)
	if p.each > 0 {
		most = min(most, int(guard/paceParts/p.each))
	}
	p.most = max(most, minPace)
}

// bound returns how many keys can be cleaned at a time.
func (p *pace) bound() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}
