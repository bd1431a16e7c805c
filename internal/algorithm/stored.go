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

// fields is how many numbers a record has without its log.
const fields = 8

// AppendBinary appends the binary form of a record: its version, and as numbers of variable length its fields, and for
// each take of its log, its time and its number, less those of the take before, and what was taken. A record that
// counts nothing has none.
func (r *Record) AppendBinary(to []byte) []byte {
	if r.Empty() {
		return to
	}
	to = append(to, binaryVersion)
	for _, n := range [fields]uint64{
		uint64(r.Scale), r.Max, r.Capacity, uint64(r.Start), r.Count, r.More, uint64(r.ID), uint64(r.Last),
	} {
		to = binary.AppendUvarint(to, n)
	}
	if r.Log == nil {
		return to
	}
	before := taken{}
	for _, h := range r.Log.held() {
		to = binary.AppendUvarint(to, uint64(h.at-before.at))
		to = binary.AppendUvarint(to, uint64(h.number-before.number))
		to = binary.AppendUvarint(to, uint64(h.n))
		before = h
	}
	return to
}

// ReadBinary returns the record that AppendBinary has appended.
func (a *Algorithm) ReadBinary(from []byte) (Record, error) {
	if len(from) == 0 {
		return Record{}, nil
	}
	var all []uint64
	for rest := from[1:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 {
			return Record{}, errBinary
		}
		all = append(all, n)
		rest = rest[size:]
	}
	if from[0] != binaryVersion || len(all) < fields || a.Logs != (len(all) > fields) || (len(all)-fields)%3 > 0 {
		return Record{}, errBinary
	}
	r := Record{
		Scale:    time.Duration(all[0]),
		Max:      all[1],
		Capacity: all[2],
		Start:    int64(all[3]),
		Count:    all[4],
		More:     all[5],
		ID:       int64(all[6]),
		Last:     int64(all[7]),
	}
	valid := r.Scale > 0 && r.Scale <= window.MaxScale && !r.Empty() && (r.Max > 0 || !a.refills)
	if a.Logs {
		r.Log = &Log{}
	}
	last := taken{}
	for all = all[fields:]; len(all) > 0; all = all[3:] {
		last = taken{last.at + int64(all[0]), last.number + uint32(all[1]), uint32(all[2])}
		valid = valid && last.n > 0
		r.Log.sum += uint64(last.n)
		r.Log.times = append(r.Log.times, last)
	}
	if !valid {
		return Record{}, errBinary
	}
	return r, nil
}
