package codec

import "slices"

// ProbeResponses is the length of the response to a probe in bytes: one [Status] for its
// INSERT and one for each of its four PURGEs.
const ProbeResponses = 5

// probeHead is the length of the INSERT without its tail.
const probeHead = 20

// probeKeys are the offsets of the INSERT's key for value sizes of 1, 2, 4 and 8 bytes.
var probeKeys = [4]int{5, 7, 11, 19}

// AppendProbe appends requests whose responses reveal the value size N of a server: an
// INSERT, and a PURGE of each of the four keys that it can have created. A client sends
// them first on a connection, in one write; [DecodeProbe] decodes the responses.
//
// The INSERT is a valid frame for every N, since the offset of the key length differs
// with N. So the probe is safe with every server, and leaves no record behind. A frame for
// another N would make the server take its bytes for op codes, and an unknown op code
// kills it (H6).
//
// The key ends with tail, which has at most 240 bytes. It should be random, some 16 bytes,
// so that clients that probe at the same time do not use the same key. A longer tail is a
// [*SizeError], and dst is returned as it was.
//
// The INSERT may set the timer of the server's collector to the end of its TTL, which no PURGE undoes: a
// client that ends before its next write leaves it so (H12). That is six hours or more away: the TTL is 6
// hours, 44 days, 2 years or 68 years for N = 1, 2, 4, 8.
//
// The INSERT is L = 20 + len(tail) bytes long. Bytes that are not shown are 00:
//
//	offset  0   2   3   4    5   6    9   10    13  18    20
//	byte    01  06  06  L-5  04  L-7  04  L-11  80  L-19  tail
func AppendProbe(dst []byte, tail []byte) ([]byte, error) {
	l := probeHead + len(tail)
	if maxTail := MaxKey - (probeHead - probeKeys[0]); len(tail) > maxTail { // so that the longest key fits
		return dst, &SizeError{Op: OpInsert, Field: "probe tail", Size: len(tail), Max: uint64(maxTail)}
	}
	start := len(dst)
	dst = slices.Grow(dst, l)[:start+l]
	b := dst[start:]
	clear(b)
	b[0] = byte(OpInsert)
	b[2] = byte(Hours)   // the unit for N = 1
	b[3] = byte(Hours)   // for N = 2, and the TTL for N = 1
	b[5] = byte(Seconds) // for N = 4, and the high byte of the TTL for N = 2
	b[9] = byte(Seconds) // for N = 8, and the high byte of the TTL for N = 4
	b[13] = 0x80         // the highest byte that is not 0 of the TTL for N = 8
	for _, k := range probeKeys {
		b[k-1] = byte(l - k)
	}
	copy(b[probeHead:], tail)
	for _, k := range probeKeys {
		dst = append(dst, byte(OpPurge), byte(l-k))
		dst = append(dst, dst[start+k:start+l]...)
	}
	return dst, nil
}

// DecodeProbe decodes the responses to a probe at the start of src. It returns the
// server's value size in bytes (1, 2, 4 or 8) and the length of the responses. The INSERT
// and exactly one of the four PURGEs must have succeeded. Errors: [ErrShort],
// [ErrMalformed].
func DecodeProbe(src []byte) (size, n int, err error) {
	for i := range ProbeResponses {
		if i == len(src) {
			return 0, 0, ErrShort
		}
		got, want := src[i], byte(1)
		switch {
		case i == 0: // the INSERT
		case size != 0: // an earlier PURGE has found the key
			want = 0
		case got == 1:
			size = 1 << (i - 1)
		case i < ProbeResponses-1: // a later PURGE can find the key
			want = 0
		}
		if got != want {
			return 0, 0, &DecodeError{Offset: int64(i), Field: "probe status", Value: uint64(got), Err: ErrMalformed}
		}
	}
	return size, ProbeResponses, nil
}
