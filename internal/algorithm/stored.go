package algorithm

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"
)

// binaryVersion is the first byte of a record in binary form. Whoever changes the form changes it.
const binaryVersion = 1

// errBinary says that bytes are not a record.
var errBinary = errors.New("what is stored is not a record of this version")

// AppendBinary appends the binary form of a record: its version, and numbers of variable length. A record that counts
// nothing has none. Of a log, it has the times that have not been given back.
func (r *Record) AppendBinary(to []byte) []byte {
	if r.Empty() {
		return to
	}
	to = append(to, binaryVersion)
	for _, n := range [...]uint64{r.Max, r.Holds, uint64(r.Start), r.Count, r.More, uint64(r.ID), uint64(r.Last)} {
		to = binary.AppendUvarint(to, n)
	}
	if r.Log == nil {
		return to
	}
	at, number := int64(0), uint32(0)
	for i := range r.Log.n {
		h := r.Log.at(i)
		if h.n == 0 {
			continue
		}
		to = binary.AppendUvarint(to, uint64(h.at-at))
		to = binary.AppendUvarint(to, uint64(h.number-number))
		to = binary.AppendUvarint(to, uint64(h.n))
		at = h.at
		number = h.number
	}
	return to
}

// ReadBinary returns the record of a scale that AppendBinary has appended.
func (a *Algorithm) ReadBinary(from []byte, scale time.Duration) (Record, error) {
	r := Record{Rule: Rule{Scale: scale}}
	if len(from) == 0 {
		return r, nil
	}
	if from[0] != binaryVersion {
		return r, errBinary
	}
	in := reader{rest: from[1:]}
	r.Max = in.number()
	r.Holds = in.number()
	r.Start = int64(in.number())
	r.Count = in.number()
	r.More = in.number()
	r.ID = int64(in.number())
	r.Last = int64(in.number())
	if a.Logs {
		r.Log = in.log()
	}
	if in.bad || len(in.rest) > 0 || a.Logs && r.Log.n == 0 || a.refills && r.Max == 0 {
		return r, errBinary
	}
	return r, nil
}

// reader reads numbers.
type reader struct {
	rest []byte
	bad  bool // there was none
}

func (in *reader) number() uint64 {
	n, size := binary.Uvarint(in.rest)
	if size <= 0 {
		in.bad = true
		in.rest = nil
		return 0
	}
	in.rest = in.rest[size:]
	return n
}

// log reads a log, up to the end.
func (in *reader) log() *Log {
	g := &Log{}
	at, number := int64(0), uint32(0)
	for len(in.rest) > 0 {
		at += int64(in.number())
		number += uint32(in.number())
		n := uint32(in.number())
		in.bad = in.bad || n == 0
		g.sum += uint64(n)
		g.ring = append(g.ring, taken{at, number, n})
	}
	g.n = len(g.ring)
	length := max(smallestRing, 1<<bits.Len(uint(max(g.n, 1)-1)))
	g.ring = append(g.ring, make([]taken, length-g.n)...)
	return g
}

// Restart makes a record start now if the clock has gone back by more than a scale since, and reports whether it
// does. A store must then keep it, although a call may be refused: otherwise it would start anew with each call, and
// never end.
func (a *Algorithm) Restart(r *Record, t Time) bool {
	if r.Empty() {
		return false
	}
	if t.Calendar != nil {
		back := time.Duration(t.Now-r.Start) < -time.Duration(r.More)
		a.look(r, r.Rule, t)
		return back
	}
	start := r.Start
	newest := int64(0)
	if a.Logs {
		newest = r.Log.newest().at
	}
	a.left(r, t)
	return r.Start != start || a.Logs && r.Log.newest().at != newest
}
