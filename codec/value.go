package codec

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Value is a type of the numbers of a server. Its size is the server's value size.
type Value interface {
	uint8 | uint16 | uint32 | uint64
}

// Size returns the value size N of T in bytes: 1, 2, 4 or 8.
func Size[T Value]() int {
	switch uint64(^T(0)) {
	case math.MaxUint8:
		return 1
	case math.MaxUint16:
		return 2
	case math.MaxUint32:
		return 4
	default:
		return 8
	}
}

// putValue writes v to the first N bytes of b. The compiler keeps one case of the switch
// for each T.
func putValue[T Value](b []byte, v T) {
	switch uint64(^T(0)) {
	case math.MaxUint8:
		b[0] = byte(v)
	case math.MaxUint16:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case math.MaxUint32:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, uint64(v))
	}
}

// getValue reads a value from the first N bytes of b.
func getValue[T Value](b []byte) T {
	switch uint64(^T(0)) {
	case math.MaxUint8:
		return T(b[0])
	case math.MaxUint16:
		return T(binary.LittleEndian.Uint16(b))
	case math.MaxUint32:
		return T(binary.LittleEndian.Uint32(b))
	default:
		return T(binary.LittleEndian.Uint64(b))
	}
}

// getNumbers reads consecutive 64-bit numbers from b.
func getNumbers(b []byte, to ...*uint64) {
	for i, v := range to {
		*v = binary.LittleEndian.Uint64(b[8*i:])
	}
}

// appendNumbers is the inverse of getNumbers.
func appendNumbers(dst []byte, numbers ...uint64) []byte {
	for _, v := range numbers {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

// text reads a text field, which is padded with NULs.
func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

// appendText is the inverse of text, for a field of n bytes.
func appendText(dst []byte, s string, n int) []byte {
	dst = append(dst, s...)
	return append(dst, make([]byte, n-len(s))...)
}
