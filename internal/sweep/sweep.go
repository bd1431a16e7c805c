// Package sweep removes records that their clients will not remove, because they have died.
//
// A sweeper looks at all records of a server from time to time. On a server that is not parked,
// records that expire can lock it up for good (H12), so a sweeper comes in time; on a parked
// one, it only frees memory. Of the sweepers of all processes, one at a time is the leader and
// does the work (leader.go).
//
// What a LIST says is a hint, because it can be wrong (H14). So a sweep has three steps:
//
//  1. A LIST, on a connection of its own, has the names (names.go).
//  2. A QUERY of each record shows what is to be done (clean.go). An [Inspect] decides.
//  3. A [Remove] removes the record (removals.go).
//
// Records that are not ours are never touched. A server that has none is parked by its
// sweepers (park.go).
//
// H1 to H27 are hazards of servers, which docs/internals/protocol.md describes.
package sweep

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/outage"
)

const (
	// startDelay is the longest time before the first sweep, unless it decides whether to park
	// the server. A program that makes one hit and ends does not sweep.
	startDelay = 100 * time.Millisecond
	// minInterval and usualInterval are between two sweeps of a server that is not parked, of
	// whatever process. Records that need more than one in minInterval do not get them: the age
	// of the last one is known in whole seconds, rounded up.
	minInterval   = 1200 * time.Millisecond
	usualInterval = 10 * time.Second
	// parkedInterval is between two sweeps of a parked server.
	parkedInterval = time.Minute
	// listDuty is the shortest interval, as a multiple of the time that a LIST takes, unless the
	// records need a shorter one for a server that is not parked.
	listDuty = 50
	// jitter divides an interval: the sweepers of a fleet come within this part of it.
	jitter = 10
	// retryPause is how long a sweeper waits after a failure, and retryDuty how long it waits at
	// least before another LIST, as a multiple of the time that the last one took.
	retryPause = time.Second
	retryDuty  = 25
	// maxTries is how often a sweep is tried if the LIST is broken.
	maxTries = 4
)

// Server is a server that can be swept. A *pool.Pool is one.
type Server interface {
	// Do sends a call and waits for its responses. If done is false, the call must not be
	// used any more.
	Do(ctx context.Context, cl *conn.Call) (done, sent bool, err error)
	// Scan sends a request on a connection of its own, whatever callers list. It passes the response to decode as it
	// arrives, and calls take after each part of it.
	Scan(ctx context.Context, r codec.Request, decode func(src []byte) (n int, done bool, err error),
		take func() (more bool)) (sent bool, err error)
	// Park parks the server, unless the client must not.
	Park(ctx context.Context) error
	// MayPark reports whether Park parks the server.
	MayPark() bool
	// Connected returns a channel that is closed when there has been a connection to the server.
	Connected() <-chan struct{}
	// Parked reports whether no record expires on the server.
	Parked() bool
	// Logger logs sweeps.
	Logger() *slog.Logger
}

// Inspect decides about a counter of a name. Left is what a QUERY shows of its TTL, in the unit that the name tells
// (H19), or 0 if the name alone shall be judged. It must be safe for concurrent use.
type Inspect func(name []byte, left uint64) Decision

// Remove removes records that a single PURGE must not remove, because clients may use their names again.
//
// It removes the records of targets, unless somebody uses them again, and returns how many records it has removed.
// Targets are those of Decisions, at most 256 of them, each of them once per sweep. Several calls run at the same time.
// Remove ends soon after ctx.
type Remove func(ctx context.Context, targets []string) (records int, err error)

// Decision is what an Inspect has decided about a record.
type Decision struct {
	// Over says that the record is not in use.
	Over bool
	// Target is what a Remove is given to remove the record, or empty if it is not to be removed now. Records that are
	// removed together have the same one.
	Target string
	// Interval is the longest time between two sweeps that records of this kind allow on a
	// server that is not parked. 0 if the record is not known after all.
	Interval time.Duration
}

// Options are the settings of a Sweeper. Server, Inspect, Remove and Calls must be set.
type Options struct {
	Server  Server
	Inspect Inspect
	Remove  Remove
	Calls   *conn.Calls
	// MaxInFlight and MaxQueued are those of the Server's connections. 0: they do not bound what travels together.
	MaxInFlight, MaxQueued int
	DryRun                 bool // change nothing
}

// Result is what a sweep found and did.
type Result struct {
	Records  int // of ours
	Removed  int // by this sweep; with DryRun, those that it would remove
	Kept     int // records that are over and remain, because their names may be used again
	Foreign  int // records that are not ours, up to 256
	listing  time.Duration
	interval time.Duration // the shortest that the records need; 0 if there are none
	leads    bool          // it is that of the leader, who makes others after it
	// brokenOff says that the sweep has not looked at all records, as the next one was due.
	brokenOff bool
	evidence  evidence
}

// Stats is what a Sweeper has done.
type Stats struct {
	Sweeps  uint64 // complete ones: neither have they failed, nor were they broken off for the next one
	Removed uint64 // records
	Foreign int    // records that the last sweep that has not failed did not know, up to 256
}

// Sweeper sweeps a server.
type Sweeper struct {
	o    Options
	wake chan struct{} // holds an element if need has become shorter

	// decided is closed by decide: it is decided whether to park the server, or maxDecide is over.
	decided chan struct{}
	decide  func()

	most  int // records of ours that one sweep looks at; maxNames except in tests
	chunk int // the most requests that travel together

	mu      sync.Mutex // guards what follows
	stats   Stats
	need    time.Duration // the shortest interval that Need was called with; 0: it was not
	last    Result        // of the last sweep that was not broken
	listing time.Duration // how long the last LIST took, even if it failed
}

// New returns a Sweeper that does nothing yet.
func New(o Options) *Sweeper {
	s := &Sweeper{o: o, most: maxNames, chunk: chunkOf(o), wake: make(chan struct{}, 1), decided: make(chan struct{})}
	s.decide = sync.OnceFunc(func() { close(s.decided) })
	return s
}

// Need says that the server must be swept at least once per interval, unless it is parked.
func (s *Sweeper) Need(interval time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.need != 0 && s.need <= interval {
		return
	}
	s.need = interval
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Stats returns what the sweeper has done.
func (s *Sweeper) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Run sweeps the server whenever it is this process's turn, until ctx ends. It begins when there is a connection.
func (s *Sweeper) Run(ctx context.Context) {
	defer s.decide()
	select {
	case <-s.o.Server.Connected():
	case <-ctx.Done():
		return
	}
	time.AfterFunc(maxDecide, s.decide)
	wait, led := s.first(ctx)
	s.decide()
	if !led && !pause(ctx, spread(startDelay)) {
		return
	}
	for outage.SleepUntil(ctx, time.Now().Add(wait), s.wake) == nil {
		wait = s.step(ctx)
	}
}

// pause waits for a time. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool { return outage.Sleep(ctx, d) == nil }

// step sweeps if the last sweep of the fleet is long enough ago. It returns how long to wait for
// the next step.
func (s *Sweeper) step(ctx context.Context) time.Duration {
	t, err := s.readTerm(ctx)
	interval := s.interval()
	if err != nil {
		return spread(min(retryPause, interval))
	}
	if due := t.due(interval); t.age < due {
		return due - t.age + rand.N(interval/jitter)
	}
	return s.lead(ctx, t, interval/2)
}

// lead begins the term after t and sweeps, which may take so long that others' requests pass. It
// returns how long to wait for the next step.
func (s *Sweeper) lead(ctx context.Context, t term, within time.Duration) time.Duration {
	interval := s.interval()
	leader, err := s.beginTerm(ctx, t)
	if err != nil || !leader {
		return spread(min(retryPause, interval))
	}
	start := time.Now()
	for range maxTries {
		r, err := s.sweep(ctx, start.Add(within), true)
		if err == nil {
			s.endTerm(ctx, t)
			break
		}
		wait := max(min(retryPause, interval), retryDuty*r.listing)
		if time.Since(start)+wait > interval/2 || !pause(ctx, wait) {
			break
		}
	}
	interval = s.interval()
	return max(interval-time.Since(start), 0) + rand.N(interval/jitter)
}

// spread returns a time between half of d and d.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// interval returns how old the last sweep must be for another. With the jitter, the time
// between two sweeps is at most what the records need, however long a sweep takes.
func (s *Sweeper) interval() time.Duration {
	s.mu.Lock()
	last := s.last
	listing := s.listing
	need := s.need
	s.mu.Unlock()
	if s.o.Server.Parked() {
		return min(max(parkedInterval, listDuty*listing), longestInterval)
	}
	interval := max(usualInterval, listDuty*listing)
	for _, need := range []time.Duration{need, last.interval, longestInterval} {
		if need > 0 {
			interval = min(interval, need*8/10) // the rest is for the jitter, and for requests
		}
	}
	return max(interval, minInterval)
}

// Sweep sweeps the server now, whoever is the leader. It slows down so that other clients'
// requests pass, but not so much that it would not be done at the deadline. With an error, which
// is nil if the sweep is complete, it returns what it did until then.
func (s *Sweeper) Sweep(ctx context.Context, deadline time.Time) (Result, error) {
	return s.sweep(ctx, deadline, false)
}

// sweep is Sweep. If leads is set, it parks the server if all its records are ours, and decides so before removals are
// waited for.
func (s *Sweeper) sweep(ctx context.Context, deadline time.Time, leads bool) (Result, error) {
	r := Result{leads: leads}
	r.evidence.wanted = leads && s.o.Server.MayPark() && !s.o.Server.Parked()
	start := time.Now()
	names, err := s.list(ctx, &r)
	removals := &removals{
		remove: s.o.Remove, permits: make(chan struct{}, maxRemovals), given: make(map[string]bool),
	}
	if cleanErr := s.clean(ctx, names, deadline, removals, &r); err == nil {
		err = cleanErr
	}
	if err == nil && leads {
		if r.evidence.wanted && r.evidence.records == r.evidence.ours {
			s.o.Server.Park(ctx) // if it fails, the next sweep tries again
		}
		s.decide()
	}
	removals.calls.Wait()
	r.Removed += removals.records
	if err == nil {
		err = removals.err
	}
	s.log(ctx, r, time.Since(start), err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Removed += uint64(r.Removed)
	if err == nil {
		if !r.brokenOff {
			s.stats.Sweeps++
		}
		s.stats.Foreign = r.Foreign
		s.last = r
	}
	return r, err
}

// log logs a sweep. Those that have changed nothing are of interest to few.
func (s *Sweeper) log(ctx context.Context, r Result, took time.Duration, err error) {
	level, message := slog.LevelDebug, "throttr: server swept"
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		level, message = slog.LevelWarn, "throttr: sweep failed"
	case r.Removed > 0:
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.Int("records", r.Records), slog.Int("removed", r.Removed),
		slog.Int("kept", r.Kept), slog.Int("foreign", r.Foreign), slog.Duration("took", took),
	}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	if s.o.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	s.o.Server.Logger().LogAttrs(ctx, level, message, attrs...)
}
