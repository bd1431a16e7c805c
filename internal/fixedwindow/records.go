package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/slot"
)

// records are the two records of a count.
type records struct {
	bands *slot.Bands
	names [2][]byte
}

// unitOf returns the unit of the TTLs of records.
func unitOf(b *slot.Bands) codec.Unit {
	u := codec.Nanoseconds
	for u.Duration() != b.Unit {
		u++
	}
	return u
}

// add adds requests to a call. Encoding does not fail: no name is too long.
func (r *records) add(cl *conn.Call, requests ...slot.Request) {
	for _, q := range requests {
		key := r.names[q.Slot]
		switch q.Op {
		case slot.Query:
			conn.Add(cl, codec.Query{Key: key})
		case slot.Insert:
			ttl := conn.TTL{Amount: r.bands.Top, Unit: unitOf(r.bands)}
			cl.Insert(conn.Insert{Key: key, Quota: q.Value, TTL: ttl})
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

// addLookup adds the requests that look both slots up, beginning with the first one.
func (r *records) addLookup(cl *conn.Call, first slot.ID) {
	r.addAction(cl, slot.Action{Kind: slot.Look, Slot: first}, 0)
}

// lookedUp returns what the responses to a lookup show.
func (r *records) lookedUp(first slot.ID, responses []conn.Response) (slots [2]slot.Observation) {
	slots[first] = r.observe(responses[0])
	slots[first.Other()] = r.observe(responses[1])
	return slots
}

// addAction adds the requests of an action that has two, a lookup or a Join of n.
func (r *records) addAction(cl *conn.Call, a slot.Action, n uint64) {
	var buf [2]slot.Request
	r.add(cl, r.bands.Requests(buf[:0], a, n)...)
}

func addUpdate(cl *conn.Call, key []byte, a codec.Attribute, c codec.Change, value uint64) {
	cl.Update(conn.Update{Attribute: a, Change: c, Value: value, Key: key})
}

// observe returns what the response to a QUERY shows.
func (r *records) observe(response conn.Response) slot.Observation {
	if !response.OK {
		return slot.Observation{}
	}
	return r.bands.Observe(response.Quota, response.TTL.Amount)
}

// span is the time of a request: from before it was sent until its responses had arrived.
type span struct{ from, to time.Time }

// effects is what the responses to an action say that it has done.
type effects struct {
	inserted bool    // an INSERT has succeeded
	armed    bool    // the TTL of the action's slot was set
	added    [2]bool // which slots a DECREASE has counted in
	purged   int     // records
	shown    [2]slot.Observation
	at       span
}

// effectsOf returns what the responses to the requests of an action say.
func (r *records) effectsOf(a slot.Action, requests []slot.Request, responses []conn.Response) (o effects) {
	for i, q := range requests {
		switch ok := responses[i].OK; q.Op {
		case slot.Insert:
			o.inserted = ok
		case slot.PatchTTL:
			o.armed = o.armed || q.Slot == a.Slot && ok
		case slot.Decrease:
			o.added[q.Slot] = ok
		case slot.Query:
			o.shown[q.Slot] = r.observe(responses[i])
		case slot.Purge:
			if ok {
				o.purged++
			}
		}
	}
	return o
}
