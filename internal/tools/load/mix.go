package load

import (
	"math"

	"github.com/throttr-go/throttr/codec"
)

// Mix is a number of requests of each kind.
type Mix struct{ Inserts, Updates, Queries int }

// MixOf returns as many requests of each kind as there were per opened window. Requests that
// take a server as long as an UPDATE count as one; there is at least one.
func MixOf(w Windows) Mix {
	of := func(n uint64) int { return int(math.Round(w.PerWindow(float64(n)))) }
	r := w.Requests
	return Mix{Inserts: of(r.Creations()), Updates: max(1, of(r.Update+r.Purge+r.Other)), Queries: of(r.Query)}
}

// Requests returns the number of requests.
func (m Mix) Requests() int { return m.Inserts + m.Updates + m.Queries }

// FramesOfMix returns the frames of a mix, of counters that exist. The INSERTs fail, which
// takes a server as long as one that does not.
func FramesOfMix[T codec.Value](m Mix) Frames {
	update, query, insert := FramesOf[T](Increase), FramesOf[T](Query), FramesOf[T](Insert)
	return Frames{
		Append: func(dst, key []byte) []byte {
			for range m.Updates { // first: the response that begins an operation must be a success
				dst = update.Append(dst, key)
			}
			for range m.Inserts {
				dst = insert.Append(dst, key)
			}
			for range m.Queries {
				dst = query.Append(dst, key)
			}
			return dst
		},
		Responses:    m.Requests(),
		ResponseSize: m.Updates*update.ResponseSize + m.Queries*query.ResponseSize + m.Inserts*insert.ResponseSize,
	}
}
