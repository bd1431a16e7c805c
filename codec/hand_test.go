package codec_test

import (
	"encoding/binary"
	"errors"

	"github.com/throttr-go/throttr/codec"
)

// Hand-written code for single messages of a single value size, which the benchmarks compare
// the codec with. It checks as much as the codec does.

var errHand = errors.New("hand: bad frame")

func handAppendUpdate(dst []byte, attribute, change byte, value uint16, key []byte) ([]byte, error) {
	if len(key) > 255 {
		return dst, errHand
	}
	dst = append(dst, 0x03, attribute, change, byte(value), byte(value>>8), byte(len(key)))
	return append(dst, key...), nil
}

func handDecodeUpdate(src []byte) (m codec.Update[uint16], n int, err error) {
	if len(src) < 6 {
		return m, 0, errHand
	}
	if src[0] != 0x03 {
		return m, 0, errHand
	}
	n = 6 + int(src[5])
	if len(src) < n {
		return m, 0, errHand
	}
	m.Attribute = codec.Attribute(src[1])
	m.Change = codec.Change(src[2])
	m.Value = binary.LittleEndian.Uint16(src[3:])
	m.Key = src[6:n:n]
	return m, n, nil
}

func handAppendQueryResponse(dst []byte, found bool, quota uint16, unit byte, amount uint16) ([]byte, error) {
	if !found {
		return append(dst, 0), nil
	}
	return append(dst, 1, byte(quota), byte(quota>>8), unit, byte(amount), byte(amount>>8)), nil
}

func handDecodeQueryResponse(src []byte) (m codec.QueryResponse[uint16], n int, err error) {
	if len(src) == 0 {
		return m, 0, errHand
	}
	if src[0] == 0 {
		return m, 1, nil
	}
	if src[0] != 1 || len(src) < 6 {
		return m, 0, errHand
	}
	m.Found = true
	m.Quota = binary.LittleEndian.Uint16(src[1:])
	m.TTL.Unit = codec.Unit(src[3])
	m.TTL.Amount = binary.LittleEndian.Uint16(src[4:])
	return m, 6, nil
}
