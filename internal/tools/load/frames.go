package load

import "github.com/throttr-go/throttr/codec"

// Workload is an operation on records of a server.
type Workload string

// The workloads.
const (
	Hit      Workload = "hit"      // counts a hit on a window that is open and never full
	Increase Workload = "increase" // adds 1 to a counter
	Query    Workload = "query"    // reads a counter
)

// TTL returns the TTL of records that a benchmark makes. It outlasts the benchmark, which
// removes them, and fits every value size.
func TTL[T codec.Value]() codec.TTL[T] { return codec.TTL[T]{Amount: 12, Unit: codec.Hours} }

// Frames encodes an operation as requests.
type Frames struct {
	// Append appends the requests for a key. Requests for keys of equal length are equally long.
	Append       func(dst, key []byte) []byte
	Responses    int // frames
	ResponseSize int // bytes of all responses, if the operation succeeds; the first is 1
}

// FramesOf returns the frames of a workload. A hit is an UPDATE and a QUERY, as it is in a
// window that the client knows.
func FramesOf[T codec.Value](w Workload) Frames {
	found := 2 + 2*codec.Size[T]() // bytes of a QUERY's response
	increase := func(dst, key []byte) []byte {
		return encode(dst, codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: key})
	}
	query := func(dst, key []byte) []byte { return encode(dst, codec.Query{Key: key}) }
	switch w {
	case Query:
		return Frames{query, 1, found}
	case Hit:
		return Frames{func(dst, key []byte) []byte { return query(increase(dst, key), key) }, 2, 1 + found}
	default:
		return Frames{increase, 1, 1}
	}
}

// encode appends a request whose key is not too long.
func encode(dst []byte, r codec.Request) []byte {
	dst, err := r.AppendBinary(dst)
	if err != nil {
		panic(err)
	}
	return dst
}
