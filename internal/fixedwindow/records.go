package fixedwindow

import (
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

// add adds the requests of an action to a call. Encoding does not fail: no name is too long.
func (r *records) add(cl *conn.Call, a slot.Action, n uint64) {
	var buf [8]slot.Request
	for _, q := range r.bands.Requests(buf[:0], a, n) {
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

func addUpdate(cl *conn.Call, key []byte, a codec.Attribute, c codec.Change, value uint64) {
	cl.Update(conn.Update{Attribute: a, Change: c, Value: value, Key: key})
}

// effects sets e to what the responses to the requests that add has added say, but for the times. It returns the
// responses after them.
func (r *records) effects(e *slot.Effects, a slot.Action, n uint64, responses []conn.Response) (others []conn.Response) {
	var buf [8]slot.Request
	requests := r.bands.Requests(buf[:0], a, n)
	for i, q := range requests {
		shown := slot.Observation{}
		if responses[i].OK {
			shown = r.bands.Observe(responses[i].Quota, responses[i].TTL.Amount)
		}
		e.Note(q, responses[i].OK, shown)
	}
	return responses[len(requests):]
}
