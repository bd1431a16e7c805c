package sweep

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/parking"
)

const (
	// maxNames bounds the records of ours that one sweep looks at. A server that has more is
	// swept in part, and not parked.
	maxNames = 1 << 20
	// maxForeign bounds the foreign records that a sweep counts.
	maxForeign = 256
	// maxListing bounds the time of a LIST. That of a million records takes a server 6 s, and a slow link some minutes.
	maxListing = 10 * time.Minute
)

// listed is a record of a LIST.
type listed struct {
	name    string
	expires uint64 // ns since 1970
}

// cut returns the first names, at most so many and of so many bytes, and the others.
func cut(all []listed, most, bytes int) (chunk, others []listed) {
	n := 0
	size := 0
	for n < min(len(all), most) && (n == 0 || size+len(all[n].name) <= bytes) {
		size += len(all[n].name) + requestOverhead
		n++
	}
	return all[:n], all[n:]
}

// list lists the server's records and returns the names of those that are to be queried, the
// next to expire first. It counts ours and the foreign ones. With an error, it
// returns what has arrived.
func (s *Sweeper) list(ctx context.Context, r *Result) ([]listed, error) {
	start := time.Now()
	var known, others []listed
	// seen has the names of both, and whether an entry said that the record is ours. Records that are listed twice count
	// once. But an entry that is not ours hides none that is: the server may have invented it (H14).
	seen := make(map[string]bool)
	d := s.o.Calls.Size().Records()
	var info codec.InfoResponse
	var entries []conn.Record
	infoDue := r.evidence.wanted
	decode := func(src []byte) (n int, done bool, err error) {
		if infoDue {
			info, n, err = codec.DecodeInfoResponse(src)
			infoDue = err != nil
			return n, false, err
		}
		entries, n, err = d.Decode(src)
		return n, d.Done(), err
	}
	var request codec.Request = codec.List{}
	if r.evidence.wanted {
		request = infoAndList{}
	}
	listing, cancel := context.WithTimeout(ctx, maxListing)
	defer cancel()
	_, err := s.o.Server.Scan(listing, request, decode, func() (more bool) {
		r.evidence.records = info.Keys // it comes first
		for _, e := range entries {
			ours := !e.Buffer && s.o.Inspect(e.Key, 0).Interval > 0
			wasOurs, ok := seen[string(e.Key)]
			if ok && (wasOurs || !ours) {
				continue
			}
			l := listed{string(e.Key), e.Expires}
			if ours {
				r.Records++
			}
			switch {
			case ours && len(known) < s.most:
				known = append(known, l)
				seen[l.name] = ours
			case !ours && len(others) < 2*maxForeign: // some may not exist
				others = append(others, l)
				seen[l.name] = ours
			}
		}
		return true
	})
	if err != nil && ctx.Err() == nil && listing.Err() != nil {
		err = fmt.Errorf("%w: its records are not listed within %v", conn.ErrStalled, maxListing) // not that of a ctx
	}
	r.listing = time.Since(start)
	s.mu.Lock()
	s.listing = r.listing
	s.mu.Unlock()
	slices.SortFunc(known, func(a, b listed) int { return cmp.Compare(a.expires, b.expires) })
	if err == nil {
		err = s.countForeign(ctx, others, r)
	}
	return known, err
}

// countForeign counts the records that exist and that are not ours, except for those
// of sweepers and of parking. If there are more than it looks at, it counts one at least: most of
// them may have been invented by the server (H14), but not all need be.
func (s *Sweeper) countForeign(ctx context.Context, others []listed, r *Result) error {
	for rest := others; len(rest) > 0; {
		var chunk []listed
		chunk, rest = cut(rest, s.chunk, maxChunkBytes)
		responses, cl, err := s.query(ctx, chunk)
		if err != nil {
			return err
		}
		for i, response := range responses {
			name := chunk[i].name
			switch {
			case name == LeaderKey && s.isTerm(response), name == "" && parking.Parks(response):
				r.evidence.ours++
			case response.OK && r.Foreign < maxForeign:
				r.Foreign++
			}
		}
		s.o.Calls.Put(cl)
	}
	if len(others) == 2*maxForeign {
		r.Foreign = max(r.Foreign, 1)
	}
	return nil
}
