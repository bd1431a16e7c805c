package fixedwindow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// aligned keeps the aligned windows of a key and scale, each in a record of its own. The name of
// the record has the number of the bucket, which is the window by the clock of each client. So a
// hit needs no lookup: one call creates the record, if there is none, and counts.
//
// Slots can't keep aligned windows. Their guards rest on windows that last for a scale, and an
// aligned window that opens shortly before its end does not.
//
// A sliding window is two aligned ones: see sliding.go.
//
// Counters count down, as in slots.
type aligned[T codec.Value] struct {
	backend        *Backend[T]
	known          known[T]
	timing         timing
	entry          *entry[T]
	server         Server[T]
	janitor        *janitor[T]
	prefix, suffix string // of the names of the records

	// past is the known window of the bucket before the known one: in a sliding window, its takes can be
	// given back. Calls of Refresh, Count and operations do not overlap.
	past state

	lastDuty *duty[T] // guarded by the mutex of the janitor
}

func newAligned[T codec.Value](b *Backend[T], server int, e *entry[T], t timing) *aligned[T] {
	a := &aligned[T]{
		// A record that has the name of a bucket has the same window.
		backend: b,
		known:   known[T]{backend: b, scale: t.scale, guard: math.MaxInt64, sliding: t.sliding, denialMemory: b.denialMemoryOf(t.scale)},
		timing:  t, entry: e, server: b.servers[server], janitor: b.janitors[server],
	}
	a.prefix, a.suffix = alignedName(t, e.key, e.name)
	return a
}

// newCall returns an empty call for the record of a bucket. If it creates the record or gives back, the caller
// sets Stale. Otherwise it may be late: it counts in its own bucket, or nowhere if the record is removed.
func (a *aligned[T]) newCall(bucket int64, atomicity conn.Atomicity) *conn.Call[T] {
	cl := a.backend.calls.Get()
	cl.Atomicity = atomicity
	cl.MostTTL = a.timing.ttl
	cl.Key = a.appendName(cl.Key[:0], bucket)
	return cl
}

// appendName appends the name of the record of a bucket.
func (a *aligned[T]) appendName(dst []byte, bucket int64) []byte {
	return append(strconv.AppendInt(append(dst, a.prefix...), bucket, 10), a.suffix...)
}

// insert adds a request that creates the record with a count.
func (a *aligned[T]) insert(cl *conn.Call[T], count uint64) {
	conn.Add(cl, codec.Insert[T]{Key: cl.Key, Quota: ^T(count), TTL: codec.TTL[T]{Amount: T(a.timing.ttl), Unit: a.timing.unit}})
}

// window returns the window of a bucket, as its record was a moment ago: with a count and what was left
// of its TTL, which a call has shown that was sent at a time.
func (a *aligned[T]) window(bucket int64, count, left uint64, before slide, sent time.Time) state {
	end, received := a.timing.end(bucket), a.backend.now()
	unit := a.timing.unit.Duration()
	lasts := time.Duration(left) * unit
	return state{
		count: count, clock: slot.Times{Sent: sent, Received: received, Until: end, Latest: end},
		bucket: bucket, slide: before, expiry: expiry{sent.Add(lasts), received.Add(lasts).Add(unit)},
	}
}

// shown returns the window of a bucket, as the response to a QUERY of its record shows it.
func (a *aligned[T]) shown(bucket int64, response conn.Response[T], before slide, sent time.Time) state {
	return a.window(bucket, uint64(^response.Quota), uint64(response.TTL.Amount), before, sent)
}

// learn makes a window the known one.
func (a *aligned[T]) learn(s *state) {
	if old, ok := a.known.current(); ok && old.bucket == s.bucket-1 {
		a.past = old
	}
	a.known.learn(s)
}

// forget forgets the known windows.
func (a *aligned[T]) forget() {
	a.past = state{}
	a.known.forget()
}

// forgetReset forgets a window that has been reset. If that is the one of the bucket before, takes of the
// known one can have been made since.
func (a *aligned[T]) forgetReset(s *state) {
	if s.id == a.past.id {
		a.past = state{}
	} else {
		a.forget()
	}
}

// Admit implements [coalesce.Windows].
func (a *aligned[T]) Admit(b coalesce.SharedHits, h coalesce.Hit) (coalesce.Verdict, coalesce.Result, error) {
	return a.known.admit(b, h)
}

// Subtract implements [coalesce.Windows].
func (a *aligned[T]) Subtract(n uint64) { a.known.subtract(n) }

// Refresh implements [coalesce.Windows]. It plans nothing.
func (a *aligned[T]) Refresh(ctx context.Context) (coalesce.Plan, error) {
	_, _, err := a.read(ctx)
	return nil, err
}

// query reads the record of the present bucket, and that of the one before if windows are sliding. It
// returns false if there is no hit in them.
func (a *aligned[T]) query(ctx context.Context) (s state, found bool, err error) {
	now := a.backend.now()
	bucket := a.timing.bucket(now)
	cl := a.newCall(bucket, conn.Interruptible)
	conn.Add(cl, codec.Query{Key: cl.Key})
	if a.timing.sliding {
		a.addBefore(cl, bucket)
	}
	if _, err := a.backend.do(ctx, a.server, cl); err != nil {
		return s, false, err
	}
	s = a.shown(bucket, cl.Responses[0], slide{}, now)
	found = cl.Responses[0].OK
	if a.timing.sliding {
		s.slide = a.slideOf(cl.Responses[1], bucket, now)
		if s.slide.absent = !found; !found {
			s.count, s.expiry, found = 0, expiry{}, s.slide.before > 0
		}
	}
	a.backend.calls.Put(cl)
	return s, found, nil
}

// read makes the window of the present bucket the known one, if there is one, and returns it.
func (a *aligned[T]) read(ctx context.Context) (s state, found bool, err error) {
	s, found, err = a.query(ctx)
	switch {
	case found:
		a.learn(&s)
	case err == nil:
		a.forget()
	}
	return s, found, err
}

// mayOpen returns an error if no record may be created. Before, it waits for the decision whether the
// server is parked, and reports whether it had to.
func (a *aligned[T]) mayOpen(ctx context.Context) (waited bool, err error) {
	waited, err = a.janitor.sweeper.AwaitDecision(ctx)
	if err == nil && a.timing.needsParking() && !a.server.Parked() {
		err = parkingError(a.timing, codec.Size[T]())
	}
	return waited, err
}

// Count implements [coalesce.Windows].
func (a *aligned[T]) Count(ctx context.Context, b coalesce.SharedHits) coalesce.Outcome {
	o := a.tryCount(ctx, b)
	if o.Full && b.Must {
		return a.known.fill(b, func(b coalesce.SharedHits) coalesce.Outcome { return a.tryCount(ctx, b) })
	}
	return o
}

// tryCount counts hits, if the counter holds them.
func (a *aligned[T]) tryCount(ctx context.Context, b coalesce.SharedHits) coalesce.Outcome {
	bucket := a.timing.bucket(a.backend.now())
	old, known := a.known.current()
	var before slide
	if known = known && old.bucket == bucket; known {
		before = old.slide
	}
	known = known && !before.absent
	if !known {
		if waited, err := a.mayOpen(ctx); err != nil {
			return coalesce.Outcome{Err: err}
		} else if waited {
			return coalesce.NotCounted
		}
	}
	cl := a.newCall(bucket, conn.SingleRead)
	if !known {
		if err := a.janitor.addAligned(a, bucket); err != nil {
			a.backend.calls.Put(cl)
			return coalesce.Outcome{Err: err}
		}
		cl.Stale = func() bool { return a.timing.bucket(a.backend.now()) != bucket }
		a.insert(cl, 0)
	}
	addUpdate(cl, cl.Key, codec.Quota, codec.Decrease, b.Sum)
	conn.Add(cl, codec.Query{Key: cl.Key})
	n, readsBefore := cl.Len(), a.timing.sliding && !before.final
	if readsBefore {
		a.addBefore(cl, bucket)
	}
	sent, err := a.backend.do(ctx, a.server, cl)
	switch {
	case errors.Is(err, conn.ErrStale):
		return coalesce.NotCounted
	case err != nil:
		return coalesce.Outcome{Err: err, Sent: sent}
	}
	added, response := cl.Responses[n-2].OK, cl.Responses[n-1]
	if readsBefore {
		before = a.slideOf(cl.Responses[n], bucket, b.Now)
	}
	before.absent = false
	a.backend.calls.Put(cl)
	if !response.OK { // it has been reset
		a.forget()
		return coalesce.NotCounted
	}
	s := a.shown(bucket, response, before, b.Now)
	if !readsBefore && s.slide.before > 0 && a.known.estimate(&s, b.Now) > b.Max {
		a.readBefore(ctx, &s)
	}
	s.undecided = b.Takes && a.known.estimate(&s, b.Now) > b.Max
	s.decided = s.count - min(s.count, b.Sum)
	a.learn(&s)
	return a.known.outcomeOf(&b, added, a.backend.now())
}

// GiveBack implements [coalesce.Windows]. Count has just read the window.
func (a *aligned[T]) GiveBack(ctx context.Context, n uint64) {
	if counted, ok := a.known.current(); ok {
		a.giveBackTo(ctx, &counted, n) // what fails stays counted until the window ends
	}
}

// giveBack gives n back to the window with an ID. It returns false if the window does not count any
// more, or if its record is another one than that of the takes.
func (a *aligned[T]) giveBack(ctx context.Context, id int64, n uint64) (given bool, err error) {
	taken, ok := a.identified(id)
	if !ok || a.over(taken.bucket) {
		return false, nil
	}
	sent := a.backend.now()
	cl := a.newCall(taken.bucket, conn.Interruptible)
	conn.Add(cl, codec.Query{Key: cl.Key})
	if _, err := a.backend.do(ctx, a.server, cl); err != nil {
		return false, nil
	}
	response := cl.Responses[0]
	a.backend.calls.Put(cl)
	present := a.shown(taken.bucket, response, taken.slide, sent)
	switch {
	case !response.OK || present.replaces(&taken):
		a.forgetReset(&taken)
		return false, nil
	case present.count < n:
		return false, nil
	}
	return a.giveBackTo(ctx, &taken, n)
}

// over reports whether the hits of a bucket do not count any more.
func (a *aligned[T]) over(bucket int64) bool {
	return !a.backend.now().Before(a.timing.countsUntil(bucket))
}

// giveBackTo gives n back to a window that has just been read. If it is reset meanwhile, giveBackTo
// takes back from the next one what it has given.
func (a *aligned[T]) giveBackTo(ctx context.Context, taken *state, n uint64) (given bool, err error) {
	sent := a.backend.now()
	cl := a.newCall(taken.bucket, conn.SingleRead)
	addUpdate(cl, cl.Key, codec.Quota, codec.Increase, n)
	conn.Add(cl, codec.Query{Key: cl.Key})
	cl.Stale = func() bool { return a.over(taken.bucket) }
	switch _, err := a.backend.do(ctx, a.server, cl); {
	case errors.Is(err, conn.ErrStale):
		return false, nil
	case err != nil:
		return false, err
	}
	given, response := cl.Responses[0].OK, cl.Responses[1]
	a.backend.calls.Put(cl)
	if !given {
		return false, nil
	}
	present := a.shown(taken.bucket, response, taken.slide, sent)
	if wrapped := present.count > maxValue[T]()-n; wrapped || present.replaces(taken) {
		a.forgetReset(taken)
		return false, a.takeBack(ctx, taken.bucket, n, wrapped)
	}
	a.learnGiven(&present)
	return true, nil
}

// identified returns the known window that has an ID, or that of the bucket before.
func (a *aligned[T]) identified(id int64) (s state, ok bool) {
	if s, ok = a.known.current(); ok && s.id != id {
		s = a.past
	}
	return s, ok && s.id == id
}

// takeBack counts n again, after it was given back to a record that has replaced that of the takes just
// then. If the addition of n has wrapped the counter, so does this one (H3).
func (a *aligned[T]) takeBack(ctx context.Context, bucket int64, n uint64, wrapped bool) error {
	change, value := codec.Decrease, n
	if wrapped {
		change, value = codec.Increase, -n
	}
	cl := a.newCall(bucket, conn.Interruptible)
	addUpdate(cl, cl.Key, codec.Quota, change, value)
	_, err := a.backend.do(ctx, a.server, cl)
	if err == nil {
		a.backend.calls.Put(cl)
	}
	return err
}

// learnGiven learns a window to which something was given back: the known one, or that of the bucket
// before.
func (a *aligned[T]) learnGiven(s *state) {
	if old, ok := a.known.current(); ok && old.bucket == s.bucket {
		a.learn(s)
		return
	}
	a.known.mu.Lock()
	defer a.known.mu.Unlock()
	a.known.state.slide.before = s.count
}

// peek implements [windows].
func (a *aligned[T]) peek(ctx context.Context) (s state, found bool, err error) {
	forgets := a.known.forgetCount()
	if s, found, err = a.query(ctx); found {
		a.known.learnUnlessKnown(&s, forgets)
	}
	return s, found, err
}

// set replaces the record of the present bucket, in one call that nothing interrupts.
func (a *aligned[T]) set(ctx context.Context, count uint64) (r coalesce.Result, sent bool, err error) {
	if _, err := a.mayOpen(ctx); err != nil {
		return r, false, err
	}
	for range maxTries {
		now := a.backend.now()
		bucket := a.timing.bucket(now)
		if err := a.janitor.addAligned(a, bucket); err != nil {
			return r, false, err
		}
		cl := a.newCall(bucket, conn.Exclusive)
		cl.Stale = func() bool { return a.timing.bucket(a.backend.now()) != bucket }
		conn.Add(cl, codec.Purge{Key: cl.Key})
		a.insert(cl, count)
		if a.timing.sliding {
			conn.Add(cl, codec.Purge{Key: a.nameBefore(cl, bucket)})
		}
		sent, err = a.backend.do(ctx, a.server, cl)
		if errors.Is(err, conn.ErrStale) {
			continue
		}
		a.forget()
		if err != nil {
			return r, sent, err
		}
		inserted := cl.Responses[1].OK
		a.backend.calls.Put(cl)
		if !inserted {
			return r, true, fmt.Errorf("%w: the record of an aligned window can't be created", conn.ErrProtocol)
		}
		s := a.window(bucket, count, a.timing.ttl, slide{}, now)
		a.learn(&s)
		return a.known.result(&s, a.backend.now()), true, nil
	}
	return r, sent, err
}

// reset removes the record of the present bucket and returns its window, if there was one.
func (a *aligned[T]) reset(ctx context.Context) (r coalesce.Result, sent bool, err error) {
	s, found, err := a.read(ctx)
	if !found || err != nil {
		return r, false, err
	}
	defer a.forget()
	r = a.known.result(&s, a.backend.now())
	bucket := a.timing.bucket(a.backend.now())
	cl := a.newCall(bucket, conn.Interruptible)
	conn.Add(cl, codec.Purge{Key: cl.Key})
	if a.timing.sliding {
		conn.Add(cl, codec.Purge{Key: a.nameBefore(cl, bucket)})
	}
	if sent, err = a.backend.do(ctx, a.server, cl); err == nil {
		a.backend.calls.Put(cl)
	}
	return r, sent, err
}

// removalTime returns when to remove the record of a bucket: when its window is over by the clocks
// of all clients.
func (a *aligned[T]) removalTime(bucket int64) time.Time {
	return a.backend.guardClock.Now().Add(a.timing.useEnd(bucket).Sub(a.backend.now()))
}

// removeAligned removes records of aligned windows that are over. No client uses their names
// again.
func (j *janitor[T]) removeAligned(chunk []*duty[T]) {
	cl := j.backend.calls.Get()
	for _, d := range chunk {
		cl.Key = append(strconv.AppendInt(append(cl.Key[:0], d.aligned.prefix...), d.bucket, 10), d.aligned.suffix...)
		conn.Add(cl, codec.Purge{Key: cl.Key})
	}
	_, err := j.backend.do(j.ctx, j.link.server, cl)
	if err == nil {
		j.backend.calls.Put(cl)
		j.link.answered.Add(1)
	}
	j.mu.Lock()
	for _, d := range chunk {
		if err != nil {
			d.due = j.backend.guardClock.Now().Add(cleanRetry)
			j.push(d)
			continue
		}
		j.drop(d)
		if d.aligned.lastDuty == d {
			d.aligned.lastDuty = nil
		}
	}
	j.mu.Unlock()
	if err == nil {
		for _, d := range chunk {
			j.backend.table.remove(d.aligned.entry)
		}
	}
}
