package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestAnOpThatIsNoRequestIsUnknown(t *testing.T) {
	known := map[byte]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true}
	for op := range 256 {
		_, n, err := codec.DecodeRequest[uint16]([]byte{byte(op)})
		if known[byte(op)] {
			require.ErrorIs(t, err, codec.ErrShort)
			continue
		}
		require.ErrorIs(t, err, codec.ErrUnknownOp)
		require.NotErrorIs(t, err, codec.ErrMalformed)
		require.Zero(t, n)
		var de *codec.DecodeError
		require.ErrorAs(t, err, &de)
		require.Equal(t, codec.DecodeError{Offset: 0, Field: "op", Value: uint64(op), Err: codec.ErrUnknownOp}, *de)
	}
}

func TestADecoderOfOneMessageRefusesAnother(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"INSERT": func(b []byte) error { _, _, err := codec.DecodeInsert[uint8](b); return err },
		"QUERY":  func(b []byte) error { _, _, err := codec.DecodeQuery(b); return err },
		"UPDATE": func(b []byte) error { _, _, err := codec.DecodeUpdate[uint16](b); return err },
		"PURGE":  func(b []byte) error { _, _, err := codec.DecodePurge(b); return err },
		"SET":    func(b []byte) error { _, _, err := codec.DecodeSet[uint32](b); return err },
		"GET":    func(b []byte) error { _, _, err := codec.DecodeGet(b); return err },
		"EVENT":  func(b []byte) error { _, _, err := codec.DecodeEvent[uint64](b); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, decode(nil), codec.ErrShort)
			err := decode([]byte{0x7f})
			require.ErrorIs(t, err, codec.ErrMalformed)
			require.EqualError(t, err, "codec: malformed frame: op is 0x7f at offset 0")
		})
	}
}

func TestAStatusIsZeroOrOne(t *testing.T) {
	for _, kind := range []codec.Kind{codec.KindStatus, codec.KindQuery, codec.KindGet} {
		t.Run(kind.String(), func(t *testing.T) {
			for b := 2; b < 256; b++ {
				res, n, err := codec.DecodeResponse[uint16](kind, []byte{byte(b), 0, 0, 0, 0, 0, 0})
				require.ErrorIs(t, err, codec.ErrMalformed)
				require.Zero(t, n)
				require.Nil(t, res)
				var de *codec.DecodeError
				require.ErrorAs(t, err, &de)
				require.Equal(t, codec.DecodeError{Offset: 0, Field: "status", Value: uint64(b), Err: codec.ErrMalformed}, *de)
			}
		})
	}
}

func TestAnUnknownKindOfResponseIsMalformed(t *testing.T) {
	for _, kind := range []codec.Kind{0, codec.KindEvent + 1, 255} {
		_, n, err := codec.DecodeResponse[uint8](kind, []byte{1})
		require.ErrorIs(t, err, codec.ErrMalformed)
		require.Zero(t, n)
	}
}

func TestDecodeErrorsNameOffsetFieldAndFinding(t *testing.T) {
	_, _, err := codec.DecodeRequest[uint16]([]byte{0x20})
	require.EqualError(t, err, "codec: unknown op: op is 0x20 at offset 0")
	_, _, err = codec.DecodeStatus([]byte{0x19})
	require.EqualError(t, err, "codec: malformed frame: status is 0x19 at offset 0")
	_, _, err = codec.DecodeEvent[uint16]([]byte{0x19, 4, 0xff, 0xff})
	require.EqualError(t, err, "codec: malformed frame: frame of 65543 bytes at offset 0, at most 8096 are allowed")
}

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		value interface{ String() string }
		want  string
	}{
		{codec.OpInsert, "INSERT"}, {codec.OpQuery, "QUERY"}, {codec.OpUpdate, "UPDATE"}, {codec.OpPurge, "PURGE"},
		{codec.OpSet, "SET"}, {codec.OpGet, "GET"}, {codec.OpEvent, "EVENT"}, {codec.Op(0x20), "op 0x20"},
		{codec.Quota, "QUOTA"}, {codec.TimeToLive, "TTL"}, {codec.Attribute(7), "attribute 0x07"},
		{codec.Patch, "PATCH"}, {codec.Increase, "INCREASE"}, {codec.Decrease, "DECREASE"}, {codec.Change(9), "change 0x09"},
		{codec.KindStatus, "status"}, {codec.KindQuery, "QUERY response"}, {codec.KindGet, "GET response"},
		{codec.KindEvent, "EVENT"}, {codec.Kind(0), "kind 0"},
		{codec.Nanoseconds, "ns"}, {codec.Microseconds, "µs"}, {codec.Milliseconds, "ms"}, {codec.Seconds, "s"},
		{codec.Minutes, "m"}, {codec.Hours, "h"}, {codec.Unit(7), "unit 0x07"},
		{codec.TTL[uint8]{Amount: 90, Unit: codec.Minutes}, "90m"},
	} {
		require.Equal(t, tt.want, tt.value.String())
	}
}
