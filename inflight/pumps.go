package inflight

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/fifo"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

const (
	// maxClaims is how many keys share an exchange. Those who want something while one is in flight share the next one,
	// which takes the store less time than several.
	maxClaims = 64
	// manyClaims is how many keys that wait for the next exchange have it at once, as a second one: then the store works
	// while this process reads answers.
	manyClaims = maxClaims / 2
	// closeTimeout bounds how long Close tells the store.
	closeTimeout = time.Second
)

// pumps are the places of a Limiter on a store that is asked.
//
// Each key and name has a pump. Those that have something to tell are queued in their lane, where one or two workers make
// their exchanges, many at a time. They end when nothing is queued. Each of the others has a timer for what it has to do.
type pumps struct {
	limiter *Limiter
	watch   *outage.Watch
	store   *outage.Guard
	process string

	mu      sync.Mutex // guards what follows, and all pumps
	closed  bool
	seq     uint64
	byID    map[id]*keyPump
	lanes   map[laneID]*lane // with pumps in them
	waiting int              // wants that are not decided
	dataSet uint64           // of a store that is one part, when it was told last
	renewAt time.Duration    // no sooner are all pumps made to renew what they hold
	losses  uint64
	lossEnd time.Duration // until then, a loss of data is the last one
	loss    *loss         // to be told when the mutex is unlocked; or nil
	lost    []*want       // the same
	drained chan struct{} // is closed when the store is closed, and has no pumps
	drain   func()        // closes it

	readies sync.Pool // of channels of wants

	ctx    context.Context // of exchanges
	cancel context.CancelFunc
}

// id identifies a pump.
type id struct{ key, name string }

// keyPump is the pump of a key and name.
type keyPump struct {
	pump
	id
	dataSet uint64 // of its part of the store, when it was told last
	queued  bool
	ended   bool // it is forgotten
	timer   *time.Timer
	timerAt time.Duration // when the timer fires; never if it does not
	awake   func()
}

// laneID tells lanes apart. Pumps share exchanges if the same part of the store keeps their keys, so that one that is away
// stops no others, and if they have the same lease, so that a short one does not cut the time of others.
type laneID struct {
	part  string
	lease time.Duration
}

// lane is pumps that share exchanges.
type lane struct {
	id      laneID
	queue   fifo.Queue[*keyPump]
	workers int // up to two
}

func newPumps(l *Limiter) *pumps {
	ps := &pumps{
		limiter: l, process: processName(os.Hostname()), byID: map[id]*keyPump{}, lanes: map[laneID]*lane{}, drained: make(chan struct{}),
	}
	ps.readies.New = func() any { return make(chan decision, 1) }
	ps.drain = sync.OnceFunc(func() { close(ps.drained) })
	ps.ctx, ps.cancel = context.WithCancel(context.Background())
	ps.watch = &outage.Watch{
		Backend: l.backend, Logger: l.logger, Instead: l.policy.String(), Text: outage.WithoutKey, Observed: l.observeOutage,
	}
	ps.store = outage.New(l.backend, outage.Options{
		Timeout: l.timeout, Failures: l.failures, Pause: l.pause, Watch: ps.watch,
		NotAsked: func(_, _ string, cause error) error { return notAsked(cause) },
	})
	return ps
}

// processName returns a name of this process that no other has, and that people know: host:number:random.
func processName(host string, _ error) string {
	host = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, host)
	return fmt.Sprintf("%.32s:%d:%s", host, os.Getpid(), rand.Text()[:10])
}

// want adds a want of a Hold.
func (ps *pumps) want(h *Hold, key string, limit *Limit, n uint64, wait bool) (*want, error) {
	ps.mu.Lock()
	defer ps.unlock()
	e := ps.byID[id{key, limit.Name}]
	switch {
	case ps.closed:
		return nil, window.ErrClosed
	case ps.waiting >= ps.limiter.maxWaiting:
		return nil, window.ErrOverloaded
	case e == nil && len(ps.byID) >= ps.limiter.maxKeys:
		return nil, window.ErrFull
	case e == nil:
		e = ps.newPump(id{key, limit.Name}, limit.Lease)
	}
	w := &want{n: n, max: limit.Max, wait: wait, hold: h, pump: e, ready: ps.readies.Get().(chan decision)}
	h.want = w
	ps.waiting++
	e.add(w)
	ps.update(e, ps.limiter.now())
	return w, nil
}

// newPump adds a pump. The mutex is held.
func (ps *pumps) newPump(k id, lease time.Duration) *keyPump {
	e := &keyPump{id: k, timerAt: never}
	e.lease = lease
	e.rules = ps.limiter.rules
	e.awake = func() { ps.wake(e, e.pump.wake) }
	ps.byID[k] = e
	return e
}

// release gives back what a want holds, or ends it.
func (ps *pumps) release(w *want) {
	ps.mu.Lock()
	defer ps.unlock()
	if w.state == waiting || w.state == inLine {
		ps.waiting--
	}
	w.pump.cancel(w)
	ps.update(w.pump, ps.limiter.now())
}

// wake does something with a pump, and what follows from it.
func (ps *pumps) wake(e *keyPump, do func()) {
	ps.mu.Lock()
	defer ps.unlock()
	do()
	ps.update(e, ps.limiter.now())
}

// unlock unlocks the mutex, and then tells the observer of what is lost.
func (ps *pumps) unlock() {
	loss, places := ps.loss, ps.lost
	ps.loss = nil
	ps.lost = nil
	ps.mu.Unlock()
	if loss != nil {
		ps.limiter.lostData(loss)
	}
	for _, w := range places {
		ps.limiter.lost.Add(w.n)
		w.hold.end(lost)
	}
}

// update does what the state of a pump needs: it tells what is decided, queues it, sets its timer, or forgets it. The
// mutex is held.
func (ps *pumps) update(e *keyPump, now time.Duration) {
	if e.ended {
		return
	}
	e.tick(now)
	for _, d := range e.decided {
		if d.state == gone {
			ps.lost = append(ps.lost, d.want)
			continue
		}
		ps.waiting--
		d.want.ready <- d // it has room
	}
	clear(e.decided)
	e.decided = e.decided[:0]
	switch {
	case e.idle(now):
		ps.forget(e)
	case e.sendAt() <= now:
		ps.queue(e)
		if e.held > 0 {
			ps.setTimer(e, e.end(), now)
		}
	default:
		ps.setTimer(e, e.due(), now)
	}
}

// setTimer has a pump updated at a time, and perhaps before. The mutex is held.
func (ps *pumps) setTimer(e *keyPump, at, now time.Duration) {
	switch {
	case at >= e.timerAt:
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(at-now, func() { ps.wake(e, func() { e.timerAt = never }) })
	default:
		e.timer.Reset(at - now)
	}
	e.timerAt = at
}

// forget forgets a pump. The mutex is held.
func (ps *pumps) forget(e *keyPump) {
	if e.ended {
		return
	}
	e.ended = true
	delete(ps.byID, e.id)
	if e.timer != nil {
		e.timer.Stop()
	}
	if ps.closed && len(ps.byID) == 0 {
		ps.drain()
	}
}

// queue queues a pump for its next exchange. The mutex is held.
func (ps *pumps) queue(e *keyPump) {
	if e.queued {
		return
	}
	e.queued = true
	k := laneID{ps.store.Part(e.key), e.lease}
	l := ps.lanes[k]
	if l == nil {
		l = &lane{id: k}
		ps.lanes[k] = l
	}
	l.queue.Push(e)
	if l.workers == 0 || l.workers == 1 && l.queue.Len() >= manyClaims {
		l.workers++
		go ps.work(l)
	}
}

// batch is the exchanges of a call of the backend. A worker reuses it.
type batch struct {
	pumps  []*keyPump
	claims []window.Claim
	places []window.Places
}

// work makes exchanges as long as pumps are queued.
func (ps *pumps) work(lane *lane) {
	var x batch
	for ps.begin(lane, &x) {
		err := ps.store.Exchange(ps.ctx, x.claims, x.places)
		ps.finish(lane, &x, err)
		runtime.Gosched() // those who were answered may want more: they share the next exchange
	}
}

// begin begins the exchanges of pumps that are queued. Without any, the worker ends.
func (ps *pumps) begin(lane *lane, x *batch) bool {
	ps.mu.Lock()
	defer ps.unlock()
	now := ps.limiter.now()
	for lane.queue.Len() > 0 && len(x.pumps) < maxClaims {
		e := lane.queue.Pop()
		e.queued = false
		if e.tick(now); e.ended || e.sendAt() > now {
			ps.update(e, now)
			continue
		}
		c := e.claim(now)
		ps.seq++
		c.Key, c.Name, c.Process, c.Seq = e.key, e.name, ps.process, ps.seq
		if len(c.Wants) > 0 {
			c.Wake = e.awake
		}
		x.pumps, x.claims, x.places = append(x.pumps, e), append(x.claims, c), append(x.places, window.Places{})
		ps.update(e, now)
	}
	if len(x.pumps) > 0 {
		return true
	}
	if lane.workers--; lane.workers == 0 {
		delete(ps.lanes, lane.id)
	}
	return false
}

// finish ends exchanges.
func (ps *pumps) finish(lane *lane, x *batch, err error) {
	ps.mu.Lock()
	defer ps.unlock()
	now := ps.limiter.now()
	for i, e := range x.pumps {
		if err := cmp.Or(err, x.places[i].Err); err != nil {
			f := failureOf(err, ps.store.Err(lane.id.part, lane.id.lease))
			e.failed(now, err, f)
			ps.update(e, now)
			if ps.closed && f >= away { // its lease frees its places
				ps.forget(e)
			}
			continue
		}
		ps.answered(lane, e, now, &x.places[i])
	}
	if err != nil { // the backend may still read it
		*x = batch{}
		return
	}
	clear(x.pumps)
	clear(x.claims)
	clear(x.places)
	x.pumps, x.claims, x.places = x.pumps[:0], x.claims[:0], x.places[:0]
}

// failureOf returns what an error says of the store.
func failureOf(err, circuit error) failure {
	switch {
	case !isOutage(err):
		return mistaken
	case circuit != nil || !outage.IsAway(err) && !errors.Is(err, window.ErrOverloaded):
		return away
	}
	return failing
}

// answered ends an exchange with its answer. If the store is another data set, all tell it at once what they hold. What is
// noticed within a lease is one loss. The mutex is held.
func (ps *pumps) answered(lane *lane, e *keyPump, now time.Duration, a *window.Places) {
	if e.answered(now, a) {
		if now >= ps.lossEnd {
			ps.losses++
			ps.loss = &loss{a.Grace}
			ps.lossEnd = now + e.lease
		}
		ps.lossEnd = max(ps.lossEnd, now+a.Grace) // another slot of a cluster has found out later
	}
	ps.update(e, now)
	known := &ps.dataSet
	if lane.id.part != "" { // a node of a cluster, where each slot is a data set
		known = &e.dataSet
	}
	changed := a.DataSet != 0 && *known != 0 && a.DataSet != *known
	if a.DataSet != 0 {
		*known = a.DataSet
	}
	if !changed || now < ps.renewAt {
		return
	}
	ps.renewAt = now + e.lease/8 // the slots of a cluster find out one by one
	for _, other := range ps.byID {
		other.renew()
		ps.update(other, now)
	}
}

// close releases all places, and tells the store.
func (ps *pumps) close() {
	var holds []*Hold
	ps.mu.Lock()
	if ps.closed {
		ps.mu.Unlock()
		return
	}
	ps.closed = true
	for _, e := range ps.byID {
		for w := e.holds; w != nil; w = w.next {
			holds = append(holds, w.hold)
		}
		e.failAll(window.ErrClosed)
		ps.update(e, ps.limiter.now())
	}
	ps.unlock()
	for _, h := range holds { // before others can have their places
		h.end(closed)
	}
	ps.mu.Lock()
	for _, e := range ps.byID {
		for e.holds != nil {
			e.cancel(e.holds)
		}
		e.at = 0
		ps.update(e, ps.limiter.now())
	}
	if len(ps.byID) == 0 {
		ps.drain()
	}
	ps.unlock()
	select {
	case <-ps.drained:
	case <-time.After(closeTimeout):
	}
	ps.cancel()
	ps.mu.Lock()
	defer ps.unlock()
	for _, e := range ps.byID {
		ps.forget(e)
	}
}

// stats adds what the store holds.
func (ps *pumps) stats(st *Stats) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	st.Waiting += ps.waiting
	st.Keys += len(ps.byID)
	st.Losses = ps.losses
	for _, e := range ps.byID {
		st.InUse += e.held + e.apart
	}
}
