package algorithm

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/throttr-go/throttr/window"
)

// binaryVersion is the first byte of a record in binary form. Whoever changes the form changes it.
const binaryVersion = 2

// errBinary says that bytes are not a record.
var errBinary = errors.New("what is stored is not a record of this version")

// numbers returns what of a record is a number.
func (r *Record) numbers() [8]uint64 {
	return [...]uint64{uint64(r.Scale), r.Max, r.Holds, uint64(r.Start), r.Count, r.More, uint64(r.ID), uint64(r.Last)}
}

// AppendBinary appends the binary form of a record: its version, and numbers of variable length. A record that counts
// nothing has none. Of a log, it has the times that have not been given back.
func (r *Record) AppendBinary(to []byte) []byte {
	if r.Empty() {
		return to
	}
	to = append(to, binaryVersion)
	for _, n := range r.numbers() {
		to = binary.AppendUvarint(to, n)
	}
	if r.Log == nil {
		return to
	}
	at, number := int64(0), uint32(0)
	for _, h := range r.Log.held() {
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

// ReadBinary returns the record that AppendBinary has appended.
func (a *Algorithm) ReadBinary(from []byte) (Record, error) {
	if len(from) == 0 {
		return Record{}, nil
	}
	in := reader{rest: from[1:]}
	r := Record{
		Scale: time.Duration(in.number()),
		Max:   in.number(),
		Holds: in.number(),
		Start: int64(in.number()),
		Count: in.number(),
		More:  in.number(),
		ID:    int64(in.number()),
		Last:  int64(in.number()),
	}
	if a.Logs {
		r.Log = in.log()
	}
	switch {
	case from[0] != binaryVersion, in.bad, len(in.rest) > 0,
		r.Scale <= 0 || r.Scale > window.MaxScale,
		r.Empty(),
		a.Logs && len(r.Log.times) == 0,
		a.refills && r.Max == 0:
		return Record{}, errBinary
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
		g.times = append(g.times, taken{at, number, n})
	}
	return g
}
