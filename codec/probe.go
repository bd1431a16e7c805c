package codec

import "slices"

// ProbeResponses is how many bytes answer a probe: one [Status] for its INSERT
// and one for each of its four PURGEs.
const ProbeResponses = 5

// probeKeys are the offsets at which the probe's key starts for servers of 1, 2,
// 4 and 8 byte values.
var probeKeys = [4]int{5, 7, 11, 19}

// AppendProbe appends a conversation that tells a server's value size without
// risk to a server of any: an INSERT that is a valid frame for every N at once,
// because the key length sits at another offset for each, and a PURGE of each of
// the four keys that it can have created. Nothing stays behind. Without it, the
// first frame of a wrong N would leave bytes that the server takes for op codes,
// and an unknown op code kills it (H6).
//
// The tail ends the key. Make it random, 16 bytes say, so that two clients that
// probe at the same moment do not meet. At most 240 bytes of it are allowed.
//
//	offset  0   2   3   4    5   6    9   10    18    20
//	byte    01  04  04  L-5  04  L-7  04  L-11  L-19  tail, with L = 20 + its length; 00 elsewhere
func AppendProbe(dst []byte, tail []byte) ([]byte, error) {
	l := 20 + len(tail)
	if l-probeKeys[0] > MaxKey {
		return dst, &SizeError{Op: OpInsert, Field: "probe tail", Size: len(tail), Max: MaxKey - 15}
	}
	start := len(dst)
	dst = slices.Grow(dst, l)[:start+l]
	b := dst[start:]
	clear(b)
	b[0] = byte(OpInsert)
	for _, i := range [4]int{2, 3, 5, 9} {
		b[i] = byte(Seconds)
	}
	for _, k := range probeKeys {
		b[k-1] = byte(l - k)
	}
	copy(b[20:], tail)
	for _, k := range probeKeys {
		dst = append(dst, byte(OpPurge), byte(l-k))
		dst = append(dst, dst[start+k:start+l]...)
	}
	return dst, nil
}

// DecodeProbe returns the value size in bytes that the answers to a probe tell:
// 1, 2, 4 or 8. The INSERT has succeeded, and exactly one of the four PURGEs has
// found its key; anything else is no server that can be talked to.
// Errors: [ErrShort], [ErrMalformed].
func DecodeProbe(src []byte) (size, n int, err error) {
	for i := range ProbeResponses {
		if i == len(src) {
			return 0, 0, ErrShort
		}
		answer, want := src[i], byte(1)
		switch {
		case i == 0: // the INSERT
		case size != 0: // the key has been found already
			want = 0
		case answer == 1:
			size = 1 << (i - 1)
		case i < ProbeResponses-1: // the key may be one of those to come
			want = 0
		}
		if answer != want {
			return 0, 0, &DecodeError{Offset: int64(i), Field: "probe status", Value: uint64(answer), Err: ErrMalformed}
		}
	}
	return size, ProbeResponses, nil
}
