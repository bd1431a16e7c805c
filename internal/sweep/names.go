package sweep

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/parking"
)

const (
	// maxFragment bounds the bytes of a fragment of a LIST. Those of real servers have less
	// than 24 KiB.
	maxFragment = 4 << 20
	// maxNames bounds the records that one sweep looks at.
	maxNames = 1 << 20
	// maxForeign bounds the foreign records that a sweep counts.
	maxForeign = 256
)

// errTooManyNames says that a LIST has more records than a sweep looks at.
var errTooManyNames = errors.New("throttr: too many records for one sweep")

// names are names of records.
type names struct {
	text []byte // all of them, one after the other
	all  []span
}

// span is one of names.
type span struct {
	start, length int
	expires       uint64 // as the LIST says, ns since 1970
}

func (n *names) add(name []byte, expires uint64) {
	n.all = append(n.all, span{len(n.text), len(name), expires})
	n.text = append(n.text, name...)
}

func (n *names) name(e span) []byte { return n.text[e.start : e.start+e.length] }

// chunks yields the names, each with at most so many names and bytes.
func (n *names) chunks(most, bytes int) iter.Seq[[][]byte] {
	return func(yield func([][]byte) bool) {
		var chunk [][]byte
		size := 0
		for _, e := range n.all {
			if len(chunk) > 0 && (len(chunk) == most || size+e.length > bytes) {
				if !yield(chunk) {
					return
				}
				chunk, size = chunk[:0], 0
			}
			chunk = append(chunk, n.name(e))
			size += e.length + requestOverhead
		}
		if len(chunk) > 0 {
			yield(chunk)
		}
	}
}

// list lists the server's records and returns the names of those that are to be queried, the
// next to expire first. It counts those of the Rule and the foreign ones. With an error, it
// returns what has arrived.
func (s *Sweeper[T]) list(ctx context.Context, r *Result) (names, error) {
	start := time.Now()
	var known, foreign names
	d := codec.ListDecoder[T]{MaxFragment: maxFragment}
	now, parked := s.o.Now(), s.o.Server.Parked()
	_, err := s.o.Server.Stream(ctx, codec.List{}, func(src []byte) (int, bool, error) {
		entries, n, err := d.Decode(src)
		for _, e := range entries {
			if string(e.Key) == LeaderKey || parking.Is(string(e.Key), e.Unit) {
				continue
			}
			removable, ours := s.o.Rule.Inspect(e.Key, now)
			switch {
			case !ours || e.Buffer:
				if len(foreign.all) < 2*maxForeign { // some may not exist
					foreign.add(e.Key, 0)
				}
			case len(known.all) == maxNames:
				return n, false, errTooManyNames
			default:
				r.Records++
				if removable || !parked {
					known.add(e.Key, e.Expires)
				}
			}
		}
		return n, d.Done(), err
	})
	r.listing = time.Since(start)
	slices.SortFunc(known.all, func(a, b span) int { return cmp.Compare(a.expires, b.expires) })
	if err == nil {
		err = s.countForeign(ctx, foreign, r)
	}
	return known, err
}

// countForeign counts the records that exist. If there are more than it looks at, it counts one at
// least: most of them may have been invented by the server (H14), but not all need be.
func (s *Sweeper[T]) countForeign(ctx context.Context, foreign names, r *Result) error {
	for chunk := range foreign.chunks(s.chunkSize(), maxChunkBytes) {
		replies, cl, err := s.query(ctx, chunk)
		if err != nil {
			return err
		}
		for _, reply := range replies {
			if reply.OK && r.Foreign < maxForeign {
				r.Foreign++
			}
		}
		s.o.Calls.Put(cl)
	}
	if len(foreign.all) == 2*maxForeign {
		r.Foreign = max(r.Foreign, 1)
	}
	return nil
}
