package fixedwindow

import (
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// layout is how windows of a scale are kept in slots.
type layout struct {
	bands slot.Bands
	unit  codec.Unit // of the TTLs
}

// layoutFor returns the layout of a scale for values up to the largest. It returns false if there
// is none.
func layoutFor(scale time.Duration, largest uint64) (*layout, bool) {
	b, ok := slot.BandsFor(scale, largest)
	if !ok {
		return nil, false
	}
	l := &layout{bands: b}
	for l.unit = codec.Nanoseconds; l.unit.Duration() != b.Unit; l.unit++ {
	}
	return l, true
}

// maxLayouts bounds the layouts that a backend remembers.
const maxLayouts = 1024

// layouts remembers the layouts of scales.
type layouts struct {
	mu  sync.RWMutex // guards all
	all map[time.Duration]*layout
}

// get returns the layout of a scale. It returns false if there is none.
func (ls *layouts) get(scale time.Duration, largest uint64) (*layout, bool) {
	ls.mu.RLock()
	l := ls.all[scale]
	ls.mu.RUnlock()
	if l != nil {
		return l, true
	}
	l, ok := layoutFor(scale, largest)
	if !ok {
		return nil, false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all == nil || len(ls.all) >= maxLayouts {
		ls.all = make(map[time.Duration]*layout)
	}
	ls.all[scale] = l
	return l, true
}

// records are the two records of a count.
type records[T codec.Value] struct {
	bands *slot.Bands
	unit  codec.Unit // of the TTLs
	names [2][]byte
}

// recordsOf returns the records with the given names.
func recordsOf[T codec.Value](l *layout, names [2][]byte) records[T] {
	return records[T]{bands: &l.bands, unit: l.unit, names: names}
}

// add adds requests to a call. Encoding does not fail: no name is too long.
func (r *records[T]) add(cl *conn.Call[T], requests ...slot.Request) {
	for _, q := range requests {
		key := r.names[q.Slot]
		switch q.Verb {
		case slot.Query:
			conn.Add(cl, codec.Query{Key: key})
		case slot.Insert:
			conn.Add(cl, codec.Insert[T]{Key: key, Quota: T(q.Value), TTL: codec.TTL[T]{Amount: T(r.bands.Top), Unit: r.unit}})
		case slot.Decrease:
			addUpdate(cl, key, codec.Quota, codec.Decrease, q.Value)
		case slot.Increase:
			addUpdate(cl, key, codec.Quota, codec.Increase, q.Value)
		case slot.PatchQuota:
			addUpdate(cl, key, codec.Quota, codec.Patch, q.Value)
		case slot.PatchTTL:
			addUpdate(cl, key, codec.TimeToLive, codec.Patch, q.Value)
		case slot.Purge:
			conn.Add(cl, codec.Purge{Key: key})
		}
	}
}

func addUpdate[T codec.Value](cl *conn.Call[T], key []byte, a codec.Attribute, c codec.Change, value uint64) {
	conn.Add(cl, codec.Update[T]{Attribute: a, Change: c, Value: T(value), Key: key})
}

// observe returns what the reply to a QUERY shows.
func (r *records[T]) observe(reply conn.Reply[T]) slot.Observation {
	if !reply.OK {
		return slot.Observation{}
	}
	return r.bands.Observe(uint64(reply.Quota), uint64(reply.TTL.Amount))
}

// outcome is what the replies to an action say.
type outcome struct {
	inserted, armed, added bool
	claimed                [2]bool // which slots a DECREASE has counted in
	purged                 int     // records
	shown                  [2]slot.Observation
	sent, received         time.Time
}

// outcome returns what the replies to the requests of an action say.
func (r *records[T]) outcome(a slot.Action, requests []slot.Request, replies []conn.Reply[T]) (o outcome) {
	for i, q := range requests {
		switch ok := replies[i].OK; q.Verb {
		case slot.Insert:
			o.inserted = ok
		case slot.PatchTTL:
			o.armed = o.armed || q.Slot == a.Slot && ok
		case slot.Decrease:
			o.added, o.claimed[q.Slot] = ok, ok
		case slot.Query:
			o.shown[q.Slot] = r.observe(replies[i])
		case slot.Purge:
			if ok {
				o.purged++
			}
		}
	}
	return o
}
