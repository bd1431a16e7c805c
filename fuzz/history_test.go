package fuzz_test

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// FuzzHistory8 and the like let the mock server execute a history of requests, with time
// that passes in between, and compare every response with a model, which is a map.
func FuzzHistory8(f *testing.F)  { fuzzHistory[uint8](f) }
func FuzzHistory16(f *testing.F) { fuzzHistory[uint16](f) }
func FuzzHistory32(f *testing.F) { fuzzHistory[uint32](f) }
func FuzzHistory64(f *testing.F) { fuzzHistory[uint64](f) }

// maxSteps bounds the steps of a history, so that fewer than 1024 responses are outstanding
// (H4).
const maxSteps = 256

func fuzzHistory[T codec.Value](f *testing.F) {
	const insert, query, update, purge, set, get, list, stat, pass = 0, 1, 2, 3, 4, 5, 6, 7, 8
	f.Add([]byte{insert, 0, 5, 4, query, 0, 0, 0, pass, 0, 3, 0, query, 0, 0, 0, pass, 0, 1, 0, insert, 0, 5, 4, pass, 0, 40, 0, insert, 0, 5, 4})
	f.Add([]byte{insert, 0, 255, 10, update, 0, 1, 5, update, 0, 2, 7, update, 0, 0, 9, query, 0, 0, 0, get, 0, 0, 0, list, 0, 0, 0})
	f.Add([]byte{set, 1, 9, 10, get, 1, 0, 0, query, 1, 0, 0, update, 1, 0, 9, set, 1, 200, 12, list, 0, 0, 0, insert, 1, 0, 9, purge, 1, 0, 0, insert, 1, 1, 0})
	f.Add([]byte{insert, 2, 1, 200, update, 2, 3, 9, update, 2, 5, 250, stat, 2, 0, 0, query, 2, 0, 0, set, 2, 1, 9, list, 0, 0, 0})
	f.Fuzz(func(t *testing.T, history []byte) {
		srv, err := mockserver.Start(mockserver.WithVirtualClock(), mockserver.WithValueSize(codec.Size[T]()),
			mockserver.WithAddr("memory", "fuzz:1"))
		require.NoError(t, err)
		nc, err := srv.Dial(context.Background())
		require.NoError(t, err)
		m := model[T]{now: uint64(srv.Now().UnixNano()), records: map[string]*modelRecord{}}
		var requests []codec.Frame
		var want []codec.Response
		for i := 0; i+4 <= len(history) && i < 4*maxSteps; i += 4 {
			step := history[i : i+4]
			if step[0]%9 != pass {
				req, res := m.step(step)
				requests, want = append(requests, req), append(want, res)
				continue
			}
			exchange[T](t, nc, requests, want)
			requests, want = nil, nil
			d := time.Duration(step[2]) * 250 * time.Millisecond
			srv.Advance(d)
			m.now += uint64(d)
		}
		exchange[T](t, nc, requests, want)
		require.Empty(t, srv.Violations())
		require.NoError(t, nc.Close())
		require.NoError(t, srv.Close())
	})
}

// exchange sends requests in one write, and compares the responses.
func exchange[T codec.Value](t *testing.T, nc net.Conn, requests []codec.Frame, want []codec.Response) {
	go write(nc, encode(t, requests...), 0)
	dec := codec.NewDecoder[T](nc)
	for i, w := range want {
		res, err := dec.Response(w.Kind())
		require.NoError(t, err)
		if l, ok := res.(codec.ListResponse[T]); ok {
			entries := slices.Concat(l.Fragments...)
			slices.SortFunc(entries, func(a, b codec.ListEntry[T]) int { return cmp.Compare(string(a.Key), string(b.Key)) })
			res = codec.ListResponse[T]{Fragments: [][]codec.ListEntry[T]{entries}}
		}
		require.Equal(t, encode(t, w), encode(t, res), "response %d, to %+v: %+v, not %+v", i, requests[i], res, w)
	}
}

// model is the state of a server.
type model[T codec.Value] struct {
	now     uint64 // ns since 1970
	records map[string]*modelRecord
	// parking is the record with the empty key, if its TTL was changed: until it ends, nothing else expires. nil: none
	parking *modelRecord
}

type modelRecord struct {
	buffer bool
	quota  uint64
	value  []byte
	unit   codec.Unit
	end    uint64 // ns since 1970
	dead   bool   // it has expired
}

// grace is how long an expired record keeps its key (H1).
const grace = uint64(10 * time.Second)

// live returns the live record of a key, and whether the key is free.
func (m *model[T]) live(key string) (r *modelRecord, free bool) {
	r = m.records[key]
	if r != nil && r.dead {
		return nil, false
	}
	return r, r == nil
}

// expire has records expire, and those removed whose grace is over.
func (m *model[T]) expire() {
	if p := m.parking; p != nil {
		if m.now < p.end {
			return
		}
		m.parking = nil
		m.expireAt(p.end) // and with it all that has waited for it
	}
	for name, r := range m.records {
		if !r.dead && m.now >= r.end {
			r.dead = true
		}
		if r.dead && m.now >= r.end+grace {
			delete(m.records, name)
		}
	}
}

// expireAt has all records expire that are over at a time, no sooner than then.
func (m *model[T]) expireAt(at uint64) {
	for name, r := range m.records {
		switch {
		case r.dead && at >= r.end+grace:
			delete(m.records, name)
		case !r.dead && at >= r.end:
			r.dead = true
			r.end = at
		}
	}
}

// left returns the remaining TTL of a record as a server does: less a nanosecond, and rounded
// down to whole units.
func (m *model[T]) left(r *modelRecord) codec.TTL[T] {
	if r.end <= m.now { // it waits for the end of another one
		return codec.TTL[T]{Unit: r.unit}
	}
	return codec.TTL[T]{Amount: T((r.end - m.now - 1) / uint64(r.unit.Duration())), Unit: r.unit}
}

// step makes a request of four bytes and executes it. It returns the request and the expected
// response.
func (m *model[T]) step(b []byte) (codec.Frame, codec.Response) {
	name := []string{"a", "b", "", strings.Repeat("k", codec.MaxKey)}[b[1]%4]
	key := []byte(name)
	m.expire()
	r, free := m.live(name)
	ttl := codec.TTL[T]{Amount: T(b[3] / 3), Unit: codec.Milliseconds + codec.Unit(b[3]%3)}
	end := m.now + uint64(ttl.Amount)*uint64(ttl.Unit.Duration())
	quota := T(b[2])
	if b[2] >= 128 {
		quota = ^T(0) - T(b[2]-128)
	}
	switch b[0] % 9 {
	case 0:
		if free {
			m.records[name] = &modelRecord{quota: uint64(quota), unit: ttl.Unit, end: end}
		}
		return codec.Insert[T]{Key: key, Quota: quota, TTL: ttl}, codec.Status(free)
	case 1:
		res := codec.QueryResponse[T]{}
		if r != nil {
			res = codec.QueryResponse[T]{Found: true, Quota: T(r.quota), TTL: m.left(r)}
		}
		return codec.Query{Key: key}, res
	case 2:
		u := codec.Update[T]{Attribute: codec.Attribute(b[2] / 3 % 2), Change: codec.Change(b[2] % 3), Value: T(b[3]), Key: key}
		return u, codec.Status(m.update(r, u))
	case 3:
		if r != nil {
			delete(m.records, name)
			if r == m.parking {
				m.parking = nil
				m.expireAt(m.now)
			}
		}
		return codec.Purge{Key: key}, codec.Status(r != nil)
	case 4:
		value := make([]byte, b[2])
		ok := free || r != nil && r.buffer
		if free {
			r = &modelRecord{buffer: true}
			m.records[name] = r
		}
		if ok {
			r.value = value
			r.unit = ttl.Unit
			r.end = end
		}
		return codec.Set[T]{Key: key, Value: value, TTL: ttl}, codec.Status(ok)
	case 5:
		res := codec.GetResponse[T]{}
		if r != nil {
			res = codec.GetResponse[T]{Found: true, TTL: m.left(r), Value: r.value}
		}
		return codec.Get{Key: key}, res
	case 6:
		return codec.List{}, m.list()
	default: // the numbers of STAT are updated once a minute: the model has none
		if r == nil {
			return codec.Stat{Key: key}, codec.StatResponse{}
		}
		return codec.Query{Key: key}, codec.QueryResponse[T]{Found: true, Quota: T(r.quota), TTL: m.left(r)}
	}
}

func (m *model[T]) update(r *modelRecord, u codec.Update[T]) bool {
	value := uint64(u.Value)
	switch {
	case r == nil, u.Attribute == codec.Quota && r.buffer:
		return false
	case u.Attribute == codec.TimeToLive:
		d := value * uint64(r.unit.Duration())
		switch u.Change {
		case codec.Patch:
			r.end = m.now + d
		case codec.Increase:
			r.end += d
		case codec.Decrease:
			r.end -= d
			if m.parking == nil || r == m.records[""] {
				r.end = max(r.end, m.now)
			}
		}
		if r == m.records[""] {
			m.parking = r
		}
	case u.Change == codec.Patch:
		r.quota = value
	case u.Change == codec.Increase:
		r.quota = uint64(T(r.quota) + u.Value) // H3
	case value > r.quota:
		return false
	default:
		r.quota -= value
	}
	return true
}

func (m *model[T]) list() codec.ListResponse[T] {
	entries := []codec.ListEntry[T]{}
	for _, name := range []string{"", "a", "b", strings.Repeat("k", codec.MaxKey)} {
		r, _ := m.live(name)
		if r == nil {
			continue
		}
		e := codec.ListEntry[T]{Key: []byte(name), Unit: r.unit, Expires: r.end, Bytes: T(codec.Size[T]())}
		if r.buffer {
			e.Buffer, e.Bytes = true, T(len(r.value))
		}
		entries = append(entries, e)
	}
	return codec.ListResponse[T]{Fragments: [][]codec.ListEntry[T]{entries}}
}
