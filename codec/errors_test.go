package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestOpThatIsNotARequestIsUnknown(t *testing.T) {
	bare := map[codec.Op]bool{
		codec.OpList: true, codec.OpInfo: true, codec.OpStats: true, codec.OpConnections: true,
		codec.OpChannels: true, codec.OpWhoAmI: true,
	}
	for op := range 256 {
		_, n, err := codec.DecodeRequest[uint16]([]byte{byte(op)})
		if bare[codec.Op(op)] {
			require.NoError(t, err)
			require.Equal(t, 1, n)
			continue
		}
		if op >= 0x01 && op <= 0x09 || op >= 0x10 && op <= 0x18 {
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

func TestDecoderRejectsOtherMessages(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"INSERT": func(b []byte) error { _, _, err := codec.DecodeInsert[uint8](b); return err },
		"QUERY":  func(b []byte) error { _, _, err := codec.DecodeQuery(b); return err },
		"UPDATE": func(b []byte) error { _, _, err := codec.DecodeUpdate[uint16](b); return err },
		"PURGE":  func(b []byte) error { _, _, err := codec.DecodePurge(b); return err },
		"SET":    func(b []byte) error { _, _, err := codec.DecodeSet[uint32](b); return err },
		"GET":    func(b []byte) error { _, _, err := codec.DecodeGet(b); return err },
		"EVENT":  func(b []byte) error { _, _, err := codec.DecodeEvent[uint64](b); return err },

		"LIST":        func(b []byte) error { _, _, err := codec.DecodeList(b); return err },
		"INFO":        func(b []byte) error { _, _, err := codec.DecodeInfo(b); return err },
		"STAT":        func(b []byte) error { _, _, err := codec.DecodeStat(b); return err },
		"STATS":       func(b []byte) error { _, _, err := codec.DecodeStats(b); return err },
		"SUBSCRIBE":   func(b []byte) error { _, _, err := codec.DecodeSubscribe(b); return err },
		"UNSUBSCRIBE": func(b []byte) error { _, _, err := codec.DecodeUnsubscribe(b); return err },
		"PUBLISH":     func(b []byte) error { _, _, err := codec.DecodePublish[uint16](b); return err },
		"CONNECTIONS": func(b []byte) error { _, _, err := codec.DecodeConnections(b); return err },
		"CONNECTION":  func(b []byte) error { _, _, err := codec.DecodeConnection(b); return err },
		"CHANNELS":    func(b []byte) error { _, _, err := codec.DecodeChannels(b); return err },
		"CHANNEL":     func(b []byte) error { _, _, err := codec.DecodeChannel(b); return err },
		"WHOAMI":      func(b []byte) error { _, _, err := codec.DecodeWhoAmI(b); return err },
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, decode(nil), codec.ErrShort)
			err := decode([]byte{0x7f})
			require.ErrorIs(t, err, codec.ErrMalformed)
			require.EqualError(t, err, "codec: malformed frame: op is 0x7f at offset 0")
		})
	}
}

func TestStatusIsZeroOrOne(t *testing.T) {
	for kind := codec.KindStatus; kind <= codec.KindWhoAmI; kind++ {
		first := 2
		switch kind {
		case codec.KindEvent: // it has no status
			continue
		case codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels, codec.KindInfo, codec.KindWhoAmI:
			first = 0 // they never fail
		}
		t.Run(kind.String(), func(t *testing.T) {
			for b := first; b < 256; b++ {
				if b == 1 {
					continue
				}
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

func TestUnknownKindIsMalformed(t *testing.T) {
	for _, kind := range []codec.Kind{0, codec.KindWhoAmI + 1, 255} {
		_, n, err := codec.DecodeResponse[uint8](kind, []byte{1})
		require.ErrorIs(t, err, codec.ErrMalformed)
		require.Zero(t, n)
	}
}

func TestDecodeErrorsNameOffsetFieldAndValue(t *testing.T) {
	_, _, err := codec.DecodeRequest[uint16]([]byte{0x20})
	require.EqualError(t, err, "codec: unknown op: op is 0x20 at offset 0")
	_, _, err = codec.DecodeStatus([]byte{0x19})
	require.EqualError(t, err, "codec: malformed frame: status is 0x19 at offset 0")
	_, _, err = codec.DecodeEvent[uint16]([]byte{0x19, 4, 0xff, 0xff})
	require.EqualError(t, err, "codec: malformed frame: frame of 65543 bytes at offset 0, at most 8096 are allowed")
}

func TestStringMethodsNameTheValue(t *testing.T) {
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
		{codec.OpList, "LIST"}, {codec.OpInfo, "INFO"}, {codec.OpStat, "STAT"}, {codec.OpStats, "STATS"},
		{codec.OpSubscribe, "SUBSCRIBE"}, {codec.OpUnsubscribe, "UNSUBSCRIBE"}, {codec.OpPublish, "PUBLISH"},
		{codec.OpConnections, "CONNECTIONS"}, {codec.OpConnection, "CONNECTION"},
		{codec.OpChannels, "CHANNELS"}, {codec.OpChannel, "CHANNEL"}, {codec.OpWhoAmI, "WHOAMI"},
		{codec.KindList, "LIST response"}, {codec.KindInfo, "INFO response"}, {codec.KindStat, "STAT response"},
		{codec.KindStats, "STATS response"}, {codec.KindConnections, "CONNECTIONS response"},
		{codec.KindConnection, "CONNECTION response"}, {codec.KindChannels, "CHANNELS response"},
		{codec.KindChannel, "CHANNEL response"}, {codec.KindWhoAmI, "WHOAMI response"},
		{codec.ClientConnection, "client"}, {codec.AgentConnection, "agent"}, {codec.ConnectionType(7), "type 0x07"},
		{codec.TCP, "tcp"}, {codec.Unix, "unix"}, {codec.Transport(7), "transport 0x07"},
		{codec.ConnID{0: 0xab, 15: 0x01}, "ab000000000000000000000000000001"},
		{codec.Nanoseconds, "ns"}, {codec.Microseconds, "µs"}, {codec.Milliseconds, "ms"}, {codec.Seconds, "s"},
		{codec.Minutes, "m"}, {codec.Hours, "h"}, {codec.Unit(7), "unit 0x07"},
		{codec.TTL[uint8]{Amount: 90, Unit: codec.Minutes}, "90m"},
	} {
		require.Equal(t, tt.want, tt.value.String())
	}
}
