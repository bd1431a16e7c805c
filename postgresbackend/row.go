package postgresbackend

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// longestKey is the length of the longest key that is stored as it is. Of a longer one, its beginning and a digest are
// stored, which are one byte longer.
const longestKey = 255

// storedKey returns what is stored of a key.
func storedKey(key string) string {
	if len(key) <= longestKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	digest := base64.RawURLEncoding.EncodeToString(sum[:])
	return key[:longestKey+1-len(digest)] + digest
}

// id is what a count belongs to, as it is stored.
type id struct{ key, limit string }

// idOf returns the id of a count: the limit is the algorithm, the scale, and the name. Before that, calendar windows
// have the unit, the start day, and the zone with a zero byte.
func idOf(key string, l *window.Limit) id {
	var space [128]byte
	to := append(space[:0], byte(l.Algorithm))
	to = binary.BigEndian.AppendUint64(to, uint64(l.Scale))
	if l.Calendar != 0 {
		of := limits.Identity(l)
		to = append(to, byte(of.Calendar), of.StartDay)
		to = append(append(to, of.Zone...), 0)
	}
	return id{storedKey(key), string(append(to, l.Name...))}
}

func (i id) compare(j id) int {
	return cmp.Or(strings.Compare(i.key, j.key), strings.Compare(i.limit, j.limit))
}

// lim returns the limit of an id, without its Max and Burst.
func (i id) lim() (window.Limit, error) {
	if len(i.limit) < 9 {
		return window.Limit{}, fmt.Errorf("%w: lim of a row has %d bytes", errRow, len(i.limit))
	}
	l := window.Limit{
		Algorithm: window.Algorithm(i.limit[0]),
		Scale:     time.Duration(binary.BigEndian.Uint64([]byte(i.limit[1:9]))), Name: i.limit[9:],
	}
	if l.Algorithm == window.CalendarWindow && len(l.Name) > 2 {
		l.Calendar = window.Calendar(l.Name[0])
		l.StartDay = l.Name[1]
		l.Zone, l.Name, _ = strings.Cut(l.Name[2:], "\x00")
	}
	if err := limits.Check(&l); err != nil {
		return l, fmt.Errorf("%w: %v", errRow, err)
	}
	return l, nil
}

// row is a row in a request.
type row struct {
	count
	record  algorithm.Record
	err     error // it has no record
	before  int64 // the version that was read; 0: none was written
	version int64 // the one that is written
	ends    int64
	changed bool // by a call of the request
	lost    bool // others have changed it meanwhile
}

// load sets the record to what was read.
func (r *row) load(state []byte, version int64) {
	*r = row{count: r.count, before: version}
	if r.record, r.err = r.algorithm.ReadBinary(state, r.rule.Scale); r.err != nil {
		r.err = fmt.Errorf("%w: %w", errRow, r.err)
	}
}

// restart makes the record start now if the clock has gone back.
func (r *row) restart(t algorithm.Time) {
	t.Calendar = r.calendar
	if r.err == nil && r.algorithm.Restart(&r.record, t) {
		r.change(t)
	}
}

// change marks the row as changed at a time.
func (r *row) change(t algorithm.Time) {
	r.changed = true
	left := max(r.algorithm.Left(&r.record, t), 0)
	r.ends = t.Now + min(int64(left), math.MaxInt64-max(t.Now, 0))
}

// rowsOf returns the rows of the calls of a request, sorted, and sets those of their parts.
func rowsOf(entries []*batched) []*row {
	var rows []*row
	known := make(map[id]*row, len(entries))
	for _, e := range entries {
		for c := e; c != nil; c = c.Next {
			for i := range c.Value.parts {
				p := &c.Value.parts[i]
				r := known[p.id]
				if r == nil {
					r = &row{count: p.count}
					known[p.id] = r
					rows = append(rows, r)
				}
				p.row = r
			}
		}
	}
	slices.SortFunc(rows, func(r, s *row) int { return r.compare(s.id) })
	return rows
}
