package codec

import "iter"

// Stats reads how much each record was used. A client sends it; the response is a
// [StatsResponse].
//
//	10
type Stats struct{}

// Op returns [OpStats].
func (Stats) Op() Op { return OpStats }

// ResponseKind returns [KindStats].
func (Stats) ResponseKind() Kind { return KindStats }

// AppendBinary appends the frame to dst. It never fails.
func (Stats) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpStats)), nil
}

// StatsResponse is the response to a [Stats]. A server sends it.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × entry · n keys
//	entry: key length 1 · reads per minute u64 · writes per minute u64 · reads u64 · writes u64
type StatsResponse struct {
	Fragments [][]StatsEntry // in the order of the wire; nil if there are none
}

// Kind returns [KindStats].
func (StatsResponse) Kind() Kind { return KindStats }

// All yields the entries of all fragments.
func (m StatsResponse) All() iter.Seq[StatsEntry] { return allOf(m.Fragments) }

// DecodeStatsResponse decodes the response to a STATS at the start of src and
// returns it and its length in bytes. A [StatsDecoder] decodes a
// response that arrives in pieces. Errors: [ErrShort], [ErrMalformed].
func DecodeStatsResponse(src []byte) (m StatsResponse, n int, err error) {
	m.Fragments, n, err = decodeFragments[StatsEntry](src)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for
// a key, dst is returned as it was.
func (m StatsResponse) AppendBinary(dst []byte) ([]byte, error) {
	return appendFragments(dst, m.Fragments)
}

// StatsDecoder decodes the response to a STATS fragment by fragment.
type StatsDecoder = FragmentDecoder[StatsEntry]

// StatsEntry is a record in a [StatsResponse].
type StatsEntry struct {
	Key []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Usage
}

func (StatsEntry) size() int { return 1 + usageSize }

func (e StatsEntry) name() []byte { return e.Key }

func (StatsEntry) nameLength(b []byte) int { return int(b[0]) }

func (StatsEntry) decode(b, key []byte) (StatsEntry, error) {
	return StatsEntry{Key: key, Usage: getUsage(b[1:])}, nil
}

func (e StatsEntry) append(dst []byte) ([]byte, error) {
	if len(e.Key) > MaxKey {
		return dst, keyTooLong(OpStats, e.Key)
	}
	return e.Usage.append(append(dst, byte(len(e.Key)))), nil
}
