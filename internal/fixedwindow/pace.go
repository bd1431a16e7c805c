package fixedwindow

import (
	"sync"
	"time"
)

const (
	// minPace is how many keys can always be cleaned at a time, however slow the server is.
	minPace = 16
	// maxBatch is the most keys that are looked up together. The calls that follow have up to four requests for each,
	// and a server keeps twice as many responses (H4).
	maxBatch = 128
	// paceParts is in how many parts of a guard the keys of a batch are looked up once, at two requests each, beside
	// the time of the network. What follows a lookup has to be written within half a guard.
	paceParts = 4
)

// pace bounds how many keys whose guards are about the same are cleaned at a time on a link: as many as can be looked
// up and acted on in a guard, one batch after the other. It also bounds a batch: to as many as the server can look up
// in a part of the guard. If there were more, all actions would be too late, and no record would be removed until it
// expires.
type pace struct {
	mu          sync.Mutex // guards the fields below
	most        int        // keys to clean at a time
	keys        int        // that are being cleaned
	batch       int        // keys to look up together, and then to act on
	least, each time.Duration
	took        time.Duration // by a batch
	changed     chan struct{} // is closed when keys becomes less or most more
}

func newPace() *pace { return &pace{most: minPace, batch: maxBatch, changed: make(chan struct{})} }

// begin returns how many of n keys can be cleaned now. The caller calls end when they are. For the
// others, it tries again when changed is closed.
func (p *pace) begin(n int) (some int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if room := p.most - p.keys; room >= min(n, p.batch, p.most) {
		some = min(n, room)
	}
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
	p.batch = maxBatch
	if p.each > 0 {
		p.batch = max(minPace, min(maxBatch, int(guard/paceParts/p.each)))
	}
}

// done is told how long a batch took, actions included.
func (p *pace) done(took, guard time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.took += (took - p.took) / 2
	most := min(2*p.most, chunkSize*maxChunks)
	if p.took > 0 {
		most = min(most, int(time.Duration(p.batch)*guard/p.took))
	}
	p.most = max(most, minPace)
	p.notify()
}

// bounds returns how many keys can be cleaned at a time, and how many of them in a batch.
func (p *pace) bounds() (most, batch int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most, p.batch
}
