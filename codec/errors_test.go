package codec_test

import (
	"fmt"
	"math"
	"slices"
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
		require.Zero(t, n)
		require.Equal(t, &codec.DecodeError{Field: "op", Value: uint64(op), Err: codec.ErrUnknownOp}, err)
		require.ErrorIs(t, err, codec.ErrUnknownOp)
	}
}

func TestDecoderRejectsOtherMessages(t *testing.T) {
	for name, decode := range map[string]func([]byte) error{
		"INSERT": func(b []byte) error { _, _, err := codec.DecodeInsert[uint8](b); return err },
		"QUERY":  func(b []byte) error { _, _, err := codec.DecodeQuery(b); return err },
		"UPDATE": func(b []byte) error { _, _, err := codec.DecodeUpdate[uint16](b); return err },
		"PURGE":  func(b []byte) error { _, _, err := codec.DecodePurge(b); return err },
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

// The responses to LIST, STATS, CONNECTIONS, CHANNELS, INFO and WHOAMI have no status of a failure.
func TestStatusIsZeroOrOne(t *testing.T) {
	neverFails := []codec.Kind{
		codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels, codec.KindInfo, codec.KindWhoAmI,
	}
	for kind := codec.KindStatus; kind <= codec.KindWhoAmI; kind++ {
		for b := range 256 {
			if kind == codec.KindEvent || b == 1 || b == 0 && !slices.Contains(neverFails, kind) {
				continue
			}
			res, n, err := codec.DecodeResponse[uint16](kind, []byte{byte(b), 0, 0, 0, 0, 0, 0})
			require.Equal(t, &codec.DecodeError{Field: "status", Value: uint64(b), Err: codec.ErrMalformed}, err, kind)
			require.Zero(t, n)
			require.Nil(t, res)
		}
	}
}

func TestEncodersRejectFramesOutOfBounds(t *testing.T) {
	long := make([]byte, 9000)
	k := long[:1]
	for _, tt := range []struct {
		name  string
		frame codec.Frame
		want  codec.SizeError
	}{
		{"INSERT key", codec.Insert[uint8]{Key: long[:256]}, codec.SizeError{Op: codec.OpInsert, Field: "key", Size: 256, Max: 255}},
		{"UPDATE key", codec.Update[uint16]{Key: long[:300]}, codec.SizeError{Op: codec.OpUpdate, Field: "key", Size: 300, Max: 255}},
		{"QUERY key", codec.Query{Key: long[:256]}, codec.SizeError{Op: codec.OpQuery, Field: "key", Size: 256, Max: 255}},
		{"PURGE key", codec.Purge{Key: long[:256]}, codec.SizeError{Op: codec.OpPurge, Field: "key", Size: 256, Max: 255}},
		{"GET key", codec.Get{Key: long[:256]}, codec.SizeError{Op: codec.OpGet, Field: "key", Size: 256, Max: 255}},
		{"SET key", codec.Set[uint16]{Key: long[:256]}, codec.SizeError{Op: codec.OpSet, Field: "key", Size: 256, Max: 255}},
		{"SET value of 256 bytes for uint8", codec.Set[uint8]{Key: k, Value: long[:256]}, codec.SizeError{Op: codec.OpSet, Field: "value", Size: 256, Max: 255}},
		{"SET frame of 8097 bytes", codec.Set[uint16]{Key: k, Value: long[:8097-8]}, codec.SizeError{Op: codec.OpSet, Field: "frame", Size: 8097, Max: 8096}},
		{"EVENT channel", codec.Event[uint16]{Channel: long[:256]}, codec.SizeError{Op: codec.OpEvent, Field: "channel", Size: 256, Max: 255}},
		{"EVENT payload of 256 bytes for uint8", codec.Event[uint8]{Payload: long[:256]}, codec.SizeError{Op: codec.OpEvent, Field: "payload", Size: 256, Max: 255}},
		{"EVENT frame of 8097 bytes", codec.Event[uint64]{Payload: long[:8097-10]}, codec.SizeError{Op: codec.OpEvent, Field: "frame", Size: 8097, Max: 8096}},
		{"GET response value of 256 bytes for uint8", codec.GetResponse[uint8]{Found: true, Value: long[:256]}, codec.SizeError{Op: codec.OpGet, Field: "value", Size: 256, Max: 255}},
		{"GET response frame of 8097 bytes", codec.GetResponse[uint32]{Found: true, Value: long[:8097-10]}, codec.SizeError{Op: codec.OpGet, Field: "frame", Size: 8097, Max: 8096}},
		{"STAT key", codec.Stat{Key: long[:256]}, codec.SizeError{Op: codec.OpStat, Field: "key", Size: 256, Max: 255}},
		{"SUBSCRIBE channel", codec.Subscribe{Channel: long[:256]}, codec.SizeError{Op: codec.OpSubscribe, Field: "channel", Size: 256, Max: 255}},
		{"UNSUBSCRIBE channel", codec.Unsubscribe{Channel: long[:256]}, codec.SizeError{Op: codec.OpUnsubscribe, Field: "channel", Size: 256, Max: 255}},
		{"CHANNEL name", codec.Channel{Name: long[:256]}, codec.SizeError{Op: codec.OpChannel, Field: "channel", Size: 256, Max: 255}},
		{"PUBLISH channel", codec.Publish[uint16]{Channel: long[:256]}, codec.SizeError{Op: codec.OpPublish, Field: "channel", Size: 256, Max: 255}},
		{"PUBLISH payload of 256 bytes for uint8", codec.Publish[uint8]{Payload: long[:256]}, codec.SizeError{Op: codec.OpPublish, Field: "payload", Size: 256, Max: 255}},
		{"PUBLISH frame of 8097 bytes", codec.Publish[uint16]{Payload: long[:8097-4]}, codec.SizeError{Op: codec.OpPublish, Field: "frame", Size: 8097, Max: 8096}},
		{"LIST response key", codec.ListResponse[uint8]{Fragments: [][]codec.ListEntry[uint8]{{{}, {Key: long[:256]}}}}, codec.SizeError{Op: codec.OpList, Field: "key", Size: 256, Max: 255}},
		{"STATS response key", codec.StatsResponse{Fragments: [][]codec.StatsEntry{{{Key: long[:256]}}}}, codec.SizeError{Op: codec.OpStats, Field: "key", Size: 256, Max: 255}},
		{"CHANNELS response name", codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{{{Name: long[:256]}}}}, codec.SizeError{Op: codec.OpChannels, Field: "channel", Size: 256, Max: 255}},
		{"CONNECTION response IP", codec.ConnectionResponse{Found: true, Connection: codec.ConnectionInfo{IP: "2001:db8::1:2:3:4"}}, codec.SizeError{Op: codec.OpConnection, Field: "IP", Size: 17, Max: 16}},
		{"INFO response version", codec.InfoResponse{Version: "12345678901234567"}, codec.SizeError{Op: codec.OpInfo, Field: "version", Size: 17, Max: 16}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dst := append(make([]byte, 0, 16), "kept"...)
			got, err := tt.frame.AppendBinary(dst)
			require.ErrorIs(t, err, codec.ErrTooLarge)
			require.Equal(t, &tt.want, err)
			require.EqualError(t, err, fmt.Sprintf("codec: %v: %s is %d bytes, at most %d are allowed", tt.want.Op, tt.want.Field, tt.want.Size, tt.want.Max))
			require.Equal(t, "kept", string(got))
			require.Same(t, &dst[0], &got[0])
			require.Equal(t, cap(dst), cap(got))
			require.Equal(t, make([]byte, 12), dst[4:16], "nothing is written behind dst")
		})
	}
}

// A length that no frame can have is an error as soon as it is read: its bytes may never
// come.
func TestLengthsOutOfBoundsAreMalformedAtOnce(t *testing.T) {
	set := append([]byte{0x05, 0x04}, 1, 0, 0, 0, 0, 0, 0, 0, 255)
	get := append([]byte{0x01, 0x04}, 1, 0, 0, 0, 0, 0, 0, 0)
	event := []byte{0x19, 255}
	for _, tt := range []struct {
		name   string
		before []byte // up to the length
		names  uint64 // bytes of key or channel
		like   codec.Frame
	}{
		{"SET", set, 255, codec.Set[uint64]{}},
		{"GET response", get, 0, codec.GetResponse[uint64]{}},
		{"EVENT", event, 255, codec.Event[uint64]{}},
		{"PUBLISH", []byte{0x13, 255}, 255, codec.Publish[uint64]{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fixed := uint64(len(tt.before)) + 8 + tt.names
			g := golden{tt.name, 8, tt.like, ""}
			for _, length := range []uint64{math.MaxUint64, math.MaxUint64 - fixed + 1, math.MaxInt64, math.MaxInt64 - fixed, 1 << 32, 8096, 8097 - fixed} {
				src := slices.Concat(tt.before, little(length))
				_, n, err := g.decode(src)
				require.Zero(t, n)
				require.ErrorIs(t, err, codec.ErrMalformed, "length %d", length)
				require.NotErrorIs(t, err, codec.ErrShort)
				var de *codec.DecodeError
				require.ErrorAs(t, err, &de)
				require.Equal(t, "frame", de.Field)
				require.ErrorContains(t, err, "at most 8096 are allowed")
				require.GreaterOrEqual(t, de.Value, uint64(codec.MaxFrame+1))
				allocs := testing.AllocsPerRun(10, func() { _, _, _ = g.decode(src) })
				require.LessOrEqual(t, allocs, 3.0, "only the error allocates")
			}
			_, _, err := g.decode(slices.Concat(tt.before, little(8096-fixed)))
			require.ErrorIs(t, err, codec.ErrShort, "a frame of 8096 bytes is allowed")
		})
	}
}
