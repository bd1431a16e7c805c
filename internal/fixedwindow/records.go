package fixedwindow

import (
	"context"
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

// act sends the requests of an action on a connection of the link, or of the pool if c is nil, and returns what they
// have done. Those of an action that rests on a lookup go out on its connection, in time or never (rule 3): errAgain
// says that they were not executed, because it was too late or the connection has ended.
func (s *countState) act(ctx context.Context, c *conn.Conn, a slot.Action, n uint64) (e slot.Effects, sent bool, err error) {
	cl := s.backend.Calls.Get()
	cl.MostTTL = s.bands.Top
	s.records.add(cl, a, n)
	searches := a.Kind == slot.Look && c != nil // which allows for what others do between its QUERYs
	cl.SingleRead = a.Kind != slot.Read && !searches
	e.First = a.Slot
	e.Sent = time.Now()
	switch {
	case c == nil:
		var done bool
		done, sent, err = s.backend.Servers[s.server].Do(ctx, cl)
		if done && err != nil {
			s.backend.Calls.Put(cl)
		}
	case a.Kind == slot.Look || a.Kind == slot.Read || a.Kind == slot.Join:
		sent, err = s.link.send(ctx, c, cl)
	default:
		sent, err = s.link.sendBy(ctx, c, cl, s.bands.Deadline(a), a.By)
	}
	e.Received = time.Now()
	if err != nil {
		return slot.Effects{}, sent, err
	}
	s.records.effects(&e, a, n, cl.Responses)
	s.backend.Calls.Put(cl)
	return e, true, nil
}

// readBoth reads both slots once, on a connection as act does.
func (s *countState) readBoth(ctx context.Context, c *conn.Conn, first slot.ID) (slot.Lookup, error) {
	e, _, err := s.act(ctx, c, slot.Action{Kind: slot.Look, Slot: first}, 0)
	return e.Lookup, err
}

// read reads a slot, on a connection as act does, and learns its window. It returns false if that is not open any more.
func (s *countState) read(ctx context.Context, c *conn.Conn, x slot.ID) (k known, live bool, err error) {
	e, _, err := s.act(ctx, c, slot.Action{Kind: slot.Read, Slot: x}, 0)
	if err != nil {
		return k, false, err
	}
	w, live := s.bands.WindowOf(x, e.Lookup)
	if live {
		k = s.learn(w)
	}
	return k, live, nil
}

// refresh reads the known window again, if it is certainly open. It is an operation.
func (s *countState) refresh(ctx context.Context) answer {
	k := s.current()
	if !k.certainlyOpen(time.Now()) {
		return answer{}
	}
	_, live, err := s.read(ctx, nil, k.Slot)
	if err == nil && !live {
		s.forget()
	}
	return answer{err: err}
}
