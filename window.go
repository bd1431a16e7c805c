package throttr

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// maxRecordKey is the longest key that is part of its records' names as it is. The
// names of a whole look then fit one packet.
const maxRecordKey = 80

// recordName returns what is before and behind the bucket in the names of a window's
// records:
//
//	rl:<scale>:<bucket>:<key>
//	rh:<scale>:<bucket>:<SHA-256 of the key, in base64>     for a key over 80 bytes
//
// and al: and ah: for aligned windows.
//
// Neither scale nor bucket contains a colon, so two windows never share a name. Each
// window has a name of its own, which is not used again within its record's life and
// grace: so it is no matter that a server keeps expired records dead for 10 s (H1), or
// alive (H2).
func recordName(key string, t timing) (prefix, suffix string) {
	kind, hashed := "rl:", "rh:"
	if t.aligned {
		kind, hashed = "al:", "ah:"
	}
	if len(key) <= maxRecordKey {
		return kind + t.scale.String() + ":", ":" + key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + t.scale.String() + ":", ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// appendName appends the name of a bucket's record.
func (l *lane[T]) appendName(dst []byte, bucket int64) []byte {
	dst = append(dst, l.prefix...)
	dst = strconv.AppendInt(dst, bucket, 10)
	return append(dst, l.suffix...)
}

// nameOf returns the name of a bucket's record. It keeps the last one. The mutex is held.
func (l *lane[T]) nameOf(bucket int64) []byte {
	if l.named != bucket || l.name == nil {
		l.name, l.named = l.appendName(nil, bucket), bucket
	}
	return l.name
}

// window is what a lane knows of the active window. Its end is known to lie between two
// instants of the backend's clock.
type window struct {
	bucket       int64
	count        uint64 // when it was last seen
	seen         time.Time
	endLo, endHi time.Time
}

// sight is a record as a QUERY has shown it.
type sight struct {
	bucket int64
	found  bool
	count  uint64
	left   uint64 // TTL in the timing's unit
	lo, hi time.Time
}

// live reports whether the record's window is active.
func (s sight) live(t timing) bool { return s.found && (t.aligned || s.left >= t.margin) }

// sighting makes a sight of the answer to a QUERY that was sent at lo and answered by
// hi.
func sighting[T codec.Value](bucket int64, a answer[T], lo, hi time.Time) sight {
	return sight{bucket: bucket, found: a.ok, count: uint64(a.quota), left: uint64(a.ttl.Amount), lo: lo, hi: hi}
}

// ends returns the bounds of the window's end. What is left was floored to a unit.
func (s sight) ends(t timing) (lo, hi time.Time) {
	if t.aligned {
		return t.end(s.bucket), t.end(s.bucket)
	}
	return s.lo.Add(t.duration(s.left - t.margin)), s.hi.Add(t.duration(s.left - t.margin + 1))
}

// after reports whether the record's window was opened after an instant.
func (s sight) after(at time.Time, t timing) bool {
	lo, _ := s.ends(t)
	return lo.Add(-t.scale).After(at)
}

// observe takes over what a sight of a live record shows.
func (l *lane[T]) observe(s sight) {
	l.mu.Lock()
	l.see(s)
	l.mu.Unlock()
}

// see is observe with the mutex held.
func (l *lane[T]) see(s sight) {
	w := window{bucket: s.bucket, count: s.count, seen: s.lo}
	w.endLo, w.endHi = s.ends(l.timing)
	if l.known && l.window.bucket == s.bucket {
		w.narrow(l.window)
	}
	l.window, l.known = w, true
}

// narrow makes use of what was known of the same window before. It returns false if the two
// contradict each other: another window has the name now, after a Set or Reset.
func (w *window) narrow(old window) (same bool) {
	lo, hi := w.endLo, w.endHi
	if old.endLo.After(lo) {
		lo = old.endLo
	}
	if old.endHi.Before(hi) {
		hi = old.endHi
	}
	if lo.After(hi) {
		return false
	}
	w.endLo, w.endHi = lo, hi
	return true
}

// of reports whether a record can be that of a window with its name. Another one that has it
// need not be the key's window: others may be about to remove it, as the younger of two.
func (s sight) of(old window, t timing) bool {
	w := window{}
	w.endLo, w.endHi = s.ends(t)
	return w.narrow(old)
}

// replaced reports whether a sight of the known window's record shows another one. The mutex
// is held.
func (l *lane[T]) replaced(s sight) bool {
	return l.known && l.window.bucket == s.bucket && !s.of(l.window, l.timing)
}

// forget is called when the known window turns out to be over, or gone.
func (l *lane[T]) forget() {
	l.mu.Lock()
	l.known = false
	l.mu.Unlock()
}

// result returns the window with another count. It never tells an end that is too
// early, nor one that is more than a scale away.
func (w window) result(t timing, count uint64, now time.Time) Window {
	left := min(max(w.endHi.Sub(now), 1), t.scale)
	return Window{Count: count, ExpiresAt: now.Add(left), Left: left}
}

// request returns an empty call for this lane's requests.
func (l *lane[T]) request(u unity) *call[T] {
	cl := l.backend.client.newCall("")
	cl.unity = u
	cl.record = l.timing.bound()
	return cl
}

// The following add a request for a bucket's record to a call. A name is never too long.

func (l *lane[T]) query(cl *call[T], bucket int64) {
	cl.scratch = l.appendName(cl.scratch[:0], bucket)
	add(cl, codec.Query{Key: cl.scratch})
}

func (l *lane[T]) increase(cl *call[T], bucket int64, n uint64) {
	cl.scratch = l.appendName(cl.scratch[:0], bucket)
	add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: T(n), Key: cl.scratch})
}

func (l *lane[T]) insert(cl *call[T], bucket int64, count uint64) {
	t := l.timing
	cl.scratch = l.appendName(cl.scratch[:0], bucket)
	add(cl, codec.Insert[T]{Key: cl.scratch, Quota: T(count), TTL: codec.TTL[T]{Amount: T(t.length + t.margin), Unit: t.unit}})
}

func (l *lane[T]) purge(cl *call[T], bucket int64) {
	cl.scratch = l.appendName(cl.scratch[:0], bucket)
	add(cl, codec.Purge{Key: cl.scratch})
}

// ask sends a call and returns its answers with the times between which it was
// executed. They are valid until the call is put back.
func (l *lane[T]) ask(ctx context.Context, cl *call[T]) (answers []answer[T], lo, hi time.Time, err error) {
	lo = l.backend.now()
	if err := l.exchange(ctx, cl); err != nil {
		return nil, lo, lo, err
	}
	return cl.answers, lo, l.backend.now(), nil
}

// exchange sends a call and waits for its answers. After an error, the call is gone.
func (l *lane[T]) exchange(ctx context.Context, cl *call[T]) error {
	c := l.backend.client
	mine, err := c.exchange(ctx, l.key, cl)
	if mine && err != nil {
		c.calls.Put(cl)
	}
	return err
}

// read reads the record of a bucket, whose name is given, after adding n to it. Since is a
// moment ago.
func (l *lane[T]) read(ctx context.Context, bucket int64, name []byte, n uint64, since time.Time) (sight, error) {
	cl := l.request(whole)
	if n > 0 {
		add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: T(n), Key: name})
	}
	add(cl, codec.Query{Key: name})
	if err := l.exchange(ctx, cl); err != nil {
		return sight{}, err
	}
	s := sighting(bucket, cl.answers[len(cl.answers)-1], since, l.backend.now())
	l.backend.client.calls.Put(cl)
	return s, nil
}

// readKnown reads the record of the known window, after adding n to it.
func (l *lane[T]) readKnown(n uint64) (sight, error) {
	l.mu.Lock()
	bucket := l.window.bucket
	name := l.nameOf(bucket)
	l.mu.Unlock()
	return l.read(l.backend.ctx, bucket, name, n, l.backend.now())
}

// count counts a flight in the known window: one round trip.
func (l *lane[T]) count(f *flight) {
	s, err := l.readKnown(f.sum)
	switch {
	case err != nil:
		l.failFlight(f, l.fate(err, !SafeToRetry(err)))
	case s.live(l.timing):
		l.mu.Lock()
		if l.replaced(s) {
			l.contested = s
			l.mu.Unlock()
			return
		}
		l.see(s)
		l.mu.Unlock()
		l.settle(f, s.count)
	default:
		l.forget()
		l.giveBack(f)
	}
}

// check reads the known window.
func (l *lane[T]) check() {
	s, err := l.readKnown(0)
	switch {
	case err != nil:
		l.failAll(l.fate(err, false))
	case s.live(l.timing):
		l.mu.Lock()
		l.known = !l.replaced(s)
		if l.known {
			l.see(s)
			l.fresh = true
		}
		l.mu.Unlock()
	default:
		l.forget()
	}
}

// contest follows a count in a record that turned out to be of another window. Where that is
// not the key's, the flight is yet to be counted.
func (l *lane[T]) contest(f *flight) {
	own := l.contested
	l.contested = sight{}
	l.mu.Lock()
	l.known = false
	l.see(own) // for the answers, if it was the window
	l.known = false
	l.mu.Unlock()
	around := l.timing.bucket(l.backend.now())
	live, err := l.look(l.backend.ctx, around)
	switch {
	case err != nil:
	case !slices.ContainsFunc(live, func(s sight) bool { return s.bucket == own.bucket || !s.after(own.hi, l.timing) }):
		l.settle(f, own.count) // it was the window, and has been ended since
	default:
		err = l.elect(live, own, true, around, f)
	}
	if err != nil {
		l.failFlight(f, l.fate(err, true))
	}
}

// fate says why a visit has no answer, and whether it may have been counted all the
// same: what the failed request was sent for is not always to count.
func (l *lane[T]) fate(err error, counted bool) error {
	var re *RequestError
	if errors.As(err, &re) {
		err = re.Err
	}
	if l.backend.ctx.Err() != nil {
		err = ErrClosed
	}
	return l.backend.refused(l.key, counted, err)
}
