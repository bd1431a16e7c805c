package fixedwindow

import (
	"context"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
)

const (
	// minPace is how many keys can always be cleaned at a time, however slow the server is.
	minPace = 16
	// maxBatch is the most keys that are looked up together. The calls that follow have up to four requests for each,
	// and a server keeps twice as many responses (H4).
	maxBatch = 128
	// maxUnderway is the most keys of the batches that are under way at the same time.
	maxUnderway = 8 * maxBatch
)

// pace bounds how many keys whose guards are about the same are cleaned at a time on a link: as many as can be looked
// up and acted on in a guard, one batch after the other.
//
// It also bounds the keys of the batches that are under way at the same time. What follows a lookup or a claim has to
// be written within half a guard. If there were more keys, all actions would be too late, and no record would be
// removed until it expires. So whenever actions are too late, there may be half as many; and a key more after each
// batch, or twice as many after some that took a small part of a guard, as on a server that is far away and fast.
type pace struct {
	turn chan struct{} // has an element while somebody waits in take, or is about to

	mu       sync.Mutex // guards the fields below
	most     int        // keys to clean at a time
	keys     int        // that are being cleaned
	batch    int        // keys that batches under way may have
	underway int        // keys that they have

	least   time.Duration // taken by a lookup
	took    time.Duration // by a batch
	changed chan struct{} // is closed when what the fields above tell may have changed
}

func newPace() *pace {
	return &pace{
		turn: make(chan struct{}, 1), changed: make(chan struct{}),
		most: minPace, batch: maxBatch,
	}
}

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

// end is called when so many keys are not being cleaned, and batches of so many not under way any more.
func (p *pace) end(keys, underway int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys -= keys
	p.underway -= underway
	p.notify()
}

// notify wakes those that wait. The caller holds mu.
func (p *pace) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// take waits until a batch of n keys, or of the first of them, can be under way, and returns how many these are. The
// caller calls end after it. Who comes first is first: many small batches do not keep a large one waiting.
func (p *pace) take(ctx context.Context, n int) (some int, err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	for {
		some, changed := p.tryTake(n)
		if some > 0 {
			return some, nil
		}
		if err := outage.SleepUntil(ctx, time.Time{}, changed); err != nil {
			return 0, err
		}
	}
}

// tryTake is take, but returns 0 instead of waiting until changed is closed.
func (p *pace) tryTake(n int) (some int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = min(n, p.batch, maxBatch); p.underway+n <= p.batch {
		some = n
	}
	p.underway += some
	return some, p.changed
}

// looked is told how long a lookup took. The least of these times is taken for that of the network.
func (p *pace) looked(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least == 0 || took < p.least {
		p.least = took
	}
}

// late is told that actions of a batch were too late. If the network alone is too slow, smaller batches are no better.
func (p *pace) late(guard time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.least >= guard/2 {
		return
	}
	p.batch = max(minPace, p.batch/2)
}

// done is told how long a batch of n keys took, actions included.
func (p *pace) done(n int, took, guard time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := 1
	if took < guard/8 {
		more = n
	}
	p.batch = min(p.batch+more, maxUnderway)
	p.took += (took - p.took) / 2
	most := min(2*p.most, chunkSize*maxChunks)
	if p.took > 0 {
		most = min(most, int(time.Duration(p.batch)*guard/p.took))
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
