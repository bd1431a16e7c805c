package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// golden is a message and its bytes, with a space between fields.
type golden struct {
	name  string
	size  int // the value size of the server
	frame codec.Frame
	bytes string
}

// decoders are those of frames like another one, by value size.
var decoders = map[int]func(like codec.Frame, src []byte) (codec.Frame, int, error){
	1: decodeLike[uint8], 2: decodeLike[uint16], 4: decodeLike[uint32], 8: decodeLike[uint64],
}

// decode reads a frame of g's kind from src.
func (g golden) decode(src []byte) (codec.Frame, int, error) { return decoders[g.size](g.frame, src) }

func decodeLike[T codec.Value](like codec.Frame, src []byte) (codec.Frame, int, error) {
	if res, ok := like.(codec.Response); ok {
		return asFrame(codec.DecodeResponse[T](res.Kind(), src))
	}
	return asFrame(codec.DecodeRequest[T](src))
}

// asFrame converts the results of a decoder.
func asFrame[M codec.Frame](m M, n int, err error) (codec.Frame, int, error) { return m, n, err }

// doc is the key of the examples in the protocol document.
var doc = []byte{7, 7, 7, 7, 7}

// goldens are messages of two value sizes. Conversations with real servers have those of all sizes.
func goldens() []golden {
	k := []byte("key")
	all := []golden{
		{"document INSERT", 2, codec.Insert[uint16]{Key: doc, Quota: 2, TTL: codec.TTL[uint16]{Amount: 3, Unit: codec.Seconds}},
			"01 0200 04 0300 05 0707070707"},
		{"document QUERY", 2, codec.Query{Key: doc}, "02 05 0707070707"},
		{"document QUERY response", 2, codec.QueryResponse[uint16]{Found: true, Quota: 2, TTL: codec.TTL[uint16]{Amount: 3, Unit: codec.Seconds}},
			"01 0200 04 0300"},
		{"document UPDATE", 2, codec.Update[uint16]{Attribute: codec.Quota, Change: codec.Increase, Value: 2, Key: doc},
			"03 00 01 0200 05 0707070707"},
		{"document PURGE", 2, codec.Purge{Key: doc}, "04 05 0707070707"},

		{"INSERT", 8, codec.Insert[uint64]{Key: k, Quota: 0x1112131415161718, TTL: codec.TTL[uint64]{Amount: 0x2122232425262728, Unit: codec.Hours}},
			"01 1817161514131211 06 2827262524232221 03 6b6579"},

		{"UPDATE", 8, codec.Update[uint64]{Attribute: codec.TimeToLive, Change: codec.Decrease, Value: 0x1112131415161718, Key: k},
			"03 01 02 1817161514131211 03 6b6579"},

		{"SET", 2, codec.Set[uint16]{TTL: codec.TTL[uint16]{Amount: 9, Unit: codec.Minutes}, Key: k, Value: []byte("value")},
			"05 05 0900 03 0500 6b6579 76616c7565"},

		{"QUERY response", 8, codec.QueryResponse[uint64]{Found: true, Quota: 7, TTL: codec.TTL[uint64]{Amount: 8, Unit: codec.Milliseconds}},
			"01 0700000000000000 03 0800000000000000"},

		{"GET response", 2, codec.GetResponse[uint16]{Found: true, TTL: codec.TTL[uint16]{Amount: 8, Unit: codec.Hours}, Value: []byte("v")},
			"01 06 0800 0100 76"},
		{"GET response of a counter", 2, codec.GetResponse[uint16]{Found: true, TTL: codec.TTL[uint16]{Amount: 8, Unit: codec.Hours}, Value: []byte{}},
			"01 06 0800 0000"},

		{"EVENT", 2, codec.Event[uint16]{Channel: []byte("news"), Payload: []byte("hello")},
			"19 04 0500 6e657773 68656c6c6f"},

		{"INSERT of an unknown unit", 2, codec.Insert[uint16]{Key: k, Quota: 1, TTL: codec.TTL[uint16]{Amount: 9, Unit: 9}},
			"01 0100 09 0900 03 6b6579"},
		{"UPDATE of an unknown attribute by an unknown change", 2, codec.Update[uint16]{Attribute: 7, Change: 9, Value: 1, Key: k},
			"03 07 09 0100 03 6b6579"},
		{"INSERT of an empty key", 2, codec.Insert[uint16]{Key: []byte{}, Quota: 1, TTL: codec.TTL[uint16]{Amount: 9, Unit: codec.Hours}},
			"01 0100 06 0900 00"},
		{"UPDATE of an empty key", 2, codec.Update[uint16]{Value: 1, Key: []byte{}}, "03 00 00 0100 00"},
		{"QUERY of an empty key", 2, codec.Query{Key: []byte{}}, "02 00"},
		{"SET of an empty value", 2, codec.Set[uint16]{TTL: codec.TTL[uint16]{Amount: 9, Unit: codec.Hours}, Key: k, Value: []byte{}},
			"05 06 0900 03 0000 6b6579"},
		{"EVENT of nothing", 2, codec.Event[uint16]{Channel: []byte{}, Payload: []byte{}}, "19 00 0000"},
		{"QUERY of the longest key", 2, codec.Query{Key: bytes.Repeat([]byte("k"), codec.MaxKey)}, "02 ff" + strings.Repeat("6b", codec.MaxKey)},
	}
	all = append(all, goldenResponses()...)
	for _, size := range []int{1, 8} { // what is the same for every value size
		all = append(all,
			golden{"QUERY", size, codec.Query{Key: k}, "02 03 6b6579"},
			golden{"PURGE", size, codec.Purge{Key: k}, "04 03 6b6579"},
			golden{"GET", size, codec.Get{Key: k}, "06 03 6b6579"},
			golden{"LIST", size, codec.List{}, "07"},
			golden{"INFO", size, codec.Info{}, "08"},
			golden{"STAT", size, codec.Stat{Key: k}, "09 03 6b6579"},
			golden{"STATS", size, codec.Stats{}, "10"},
			golden{"SUBSCRIBE", size, codec.Subscribe{Channel: k}, "11 03 6b6579"},
			golden{"UNSUBSCRIBE", size, codec.Unsubscribe{Channel: k}, "12 03 6b6579"},
			golden{"CONNECTIONS", size, codec.Connections{}, "14"},
			golden{"CONNECTION", size, codec.Connection{ID: connID}, "15 000102030405060708090a0b0c0d0e0f"},
			golden{"CHANNELS", size, codec.Channels{}, "16"},
			golden{"CHANNEL", size, codec.Channel{Name: k}, "17 03 6b6579"},
			golden{"WHOAMI", size, codec.WhoAmI{}, "18"},
			golden{"success", size, codec.Success, "01"},
			golden{"failure", size, codec.Failure, "00"},
		)
	}
	return append(all,
		golden{"QUERY response, not found", 8, codec.QueryResponse[uint64]{}, "00"},
		golden{"GET response, not found", 8, codec.GetResponse[uint64]{}, "00"},
	)
}

// bounds are messages that are as long as they may be. Their bytes are left out.
func bounds() []golden {
	long := bytes.Repeat([]byte("x"), 9000)
	return []golden{
		{"SET of 8096 bytes", 2, codec.Set[uint16]{Key: long[:1], Value: long[:8096-8]}, ""},
		{"SET of 8096 bytes", 4, codec.Set[uint32]{Key: long[:255], Value: long[:8096-11-255]}, ""},
		{"SET of 8096 bytes", 8, codec.Set[uint64]{Key: long[:1], Value: long[:8096-20]}, ""},
		{"EVENT of 8096 bytes", 2, codec.Event[uint16]{Channel: long[:1], Payload: long[:8096-5]}, ""},
		{"GET response of 8096 bytes", 8, codec.GetResponse[uint64]{Found: true, Value: long[:8096-18]}, ""},
		{"SET of the longest key and value", 1, codec.Set[uint8]{Key: long[:255], Value: long[:255]}, ""},
		{"EVENT of the longest texts", 1, codec.Event[uint8]{Channel: long[:255], Payload: long[:255]}, ""},
		{"INSERT of the longest key", 8, codec.Insert[uint64]{Key: long[:255], Quota: math.MaxUint64}, ""},
	}
}

// Each message has its bytes, and all of them. Appending to a decoded key must not overwrite what follows it in the
// input.
func TestFramesAndTheirBytes(t *testing.T) {
	for _, g := range append(goldens(), bounds()...) {
		t.Run(fmt.Sprint(g.name, "/", g.size), func(t *testing.T) {
			src, err := g.frame.AppendBinary(nil)
			require.NoError(t, err)
			if g.bytes != "" {
				require.Equal(t, strings.ReplaceAll(g.bytes, " ", ""), hex.EncodeToString(src))
			}
			for _, received := range [][]byte{src, append(slices.Clip(src), "next"...)} {
				m, n, err := g.decode(received)
				require.NoError(t, err)
				require.Equal(t, len(src), n)
				require.Equal(t, g.frame, m)
				for _, field := range byteFields(reflect.ValueOf(m)) {
					require.Equal(t, len(field), cap(field))
				}
			}
			for i := range src {
				_, n, err := g.decode(src[:i:i])
				require.ErrorIs(t, err, codec.ErrShort)
				require.Zero(t, n)
			}
		})
	}
}

// byteFields returns the byte slices in a message.
func byteFields(v reflect.Value) (all [][]byte) {
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return [][]byte{v.Bytes()}
		}
		for i := range v.Len() {
			all = append(all, byteFields(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			all = append(all, byteFields(v.Field(i))...)
		}
	}
	return all
}

var connID = codec.ConnID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// numbers returns the bytes of n 64-bit numbers, counting up from first.
func numbers(first, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteByte("0123456789abcdef"[(first+i)>>4])
		b.WriteByte("0123456789abcdef"[(first+i)&15])
		b.WriteString("00000000000000 ")
	}
	return b.String()
}

// somebody is a connection whose numbers count up from 1.
var somebody = codec.ConnectionInfo{
	ID: connID, Type: codec.AgentConnection, Transport: codec.Unix, IPVersion: 6, IP: "::1", Port: 12345,
	Connected: 1, ReadBytes: 2, WriteBytes: 3, PublishedBytes: 4, ReceivedBytes: 5, AllocatedBytes: 6, ConsumedBytes: 7,
	Requests: codec.RequestCounts{
		Insert: 8, Set: 9, Query: 10, Get: 11, Update: 12, Purge: 13, List: 14, Info: 15, Stat: 16, Stats: 17,
		Publish: 18, Subscribe: 19, Unsubscribe: 20, Connections: 21, Connection: 22, Channels: 23, Channel: 24, WhoAmI: 25,
	},
}

var somebodysBytes = "000102030405060708090a0b0c0d0e0f 01 01 06 3a3a3100000000000000000000000000 3930 " + numbers(1, 25)

func count(n uint64) codec.Count { return codec.Count{Total: n, PerMinute: n + 1} }

// goldenResponses are the messages about the server itself.
func goldenResponses() []golden {
	k, long := []byte("key"), []byte("longer")
	one := "0100000000000000"
	two := "0200000000000000"
	return []golden{
		{"PUBLISH", 2, codec.Publish[uint16]{Channel: k, Payload: []byte("hello")}, "13 03 0500 6b6579 68656c6c6f"},
		{"PUBLISH of nothing", 2, codec.Publish[uint16]{Channel: []byte{}, Payload: []byte{}}, "13 00 0000"},

		{"LIST response, empty", 2, codec.ListResponse[uint16]{}, "01 0000000000000000"},
		{"LIST response", 2, codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{
			{{Key: k, Unit: codec.Hours, Expires: 5, Bytes: 2}, {Key: long, Buffer: true, Unit: codec.Seconds, Expires: 6, Bytes: 0x102}},
			{{Key: []byte{}, Unit: 9, Expires: 7, Bytes: 2}},
		}}, "01" + two +
			one + two + "03 00 06 0500000000000000 0200" + "06 01 04 0600000000000000 0201" + "6b6579 6c6f6e676572" +
			two + one + "00 00 09 0700000000000000 0200"},

		{"STATS response, empty", 2, codec.StatsResponse{}, "01 0000000000000000"},
		{"STATS response", 2, codec.StatsResponse{Fragments: [][]codec.StatsEntry{
			{{Key: long, Usage: codec.Usage{ReadsPerMinute: 1, WritesPerMinute: 2, Reads: 3, Writes: 4}}, {Key: []byte{}}},
			{{Key: k}},
		}}, "01" + two + one + two + "06" + numbers(1, 4) + "00" + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + "6c6f6e676572" +
			two + one + "03" + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + numbers(0, 1) + "6b6579"},
		{"STAT response", 2, codec.StatResponse{Found: true, Usage: codec.Usage{ReadsPerMinute: 1, WritesPerMinute: 2, Reads: 3, Writes: 4}}, "01" + numbers(1, 4)},
		{"STAT response, not found", 2, codec.StatResponse{}, "00"},

		{"CHANNELS response", 2, codec.ChannelsResponse{Fragments: [][]codec.ChannelsEntry{
			{{Name: []byte("*"), ReadBytes: 1, WriteBytes: 2, Connections: 3}, {Name: k, ReadBytes: 4, WriteBytes: 5, Connections: 6}},
		}}, "01" + one + one + two + "01" + numbers(1, 3) + "03" + numbers(4, 3) + "2a 6b6579"},
		{"CHANNEL response", 2, codec.ChannelResponse{Found: true, Subscribers: []codec.Subscriber{
			{ID: connID, Since: 1, ReadBytes: 2, WriteBytes: 3}, {Since: 4, ReadBytes: 5, WriteBytes: 6},
		}}, "01" + two + "000102030405060708090a0b0c0d0e0f" + numbers(1, 3) + "00000000000000000000000000000000" + numbers(4, 3)},
		{"CHANNEL response of no subscribers", 2, codec.ChannelResponse{Found: true, Subscribers: []codec.Subscriber{}}, "01 0000000000000000"},
		{"CHANNEL response, not found", 2, codec.ChannelResponse{}, "00"},

		{"CONNECTIONS response", 2, codec.ConnectionsResponse{Fragments: [][]codec.ConnectionInfo{{somebody, {}}, {somebody}}},
			"01" + two + one + two + somebodysBytes + strings.Repeat("00", 237) + two + one + somebodysBytes},
		{"CONNECTION response", 2, codec.ConnectionResponse{Found: true, Connection: somebody}, "01" + somebodysBytes},
		{"CONNECTION response, not found", 2, codec.ConnectionResponse{}, "00"},

		{"WHOAMI response", 2, codec.WhoAmIResponse{ID: connID}, "01 000102030405060708090a0b0c0d0e0f"},
		{"INFO response", 2, codec.InfoResponse{
			Timestamp: 1,
			Requests: codec.InfoRequests{
				All: count(2), Insert: count(4), Query: count(6), Update: count(8), Purge: count(10), Get: count(12), Set: count(14),
				List: count(16), Info: count(18), Stats: count(20), Stat: count(22), Subscribe: count(24), Unsubscribe: count(26),
				Publish: count(28), Channel: count(30), Channels: count(32), WhoAmI: count(34), Connection: count(36), Connections: count(38),
			},
			ReadBytes: count(40), WriteBytes: count(42),
			Keys: 44, Counters: 45, Buffers: 46, CounterBytes: 47, BufferBytes: 48,
			Subscriptions: 49, Channels: 50, RunningSince: 51, Connections: 52, Version: "5.0.11",
		}, "01" + numbers(1, 52) + "352e302e3131 00000000000000000000"},
	}
}

// recorded returns a response of a real server.
func recorded(t testing.TB, name string) []byte {
	file, err := os.ReadFile("testdata/responses-uint16.json")
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(file, &all))
	return unhex(t, all[name].(string))
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// A response of a real server has its bytes again, also if a Decoder reads it: its buffer grows for one that is longer.
func TestLargeResponsesOfARealServerRoundTrip(t *testing.T) {
	names := []string{"list", "stats", "connections_response", "channels_response", "channel_multi", "info", "whoami", "list"}
	kinds := []codec.Kind{
		codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels, codec.KindChannel,
		codec.KindInfo, codec.KindWhoAmI, codec.KindList,
	}
	var all [][]byte
	for _, name := range names {
		all = append(all, recorded(t, name))
	}
	src := bytes.Join(all, nil)
	for _, r := range []io.Reader{bytes.NewReader(src), iotest.HalfReader(bytes.NewReader(src))} {
		dec := codec.NewDecoder[uint16](r)
		for i, kind := range kinds {
			res, err := dec.Response(kind)
			require.NoError(t, err)
			require.Equal(t, kind, res.Kind())
			again, err := res.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, all[i], again, kind)
		}
		_, err := dec.Response(codec.KindStatus)
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestProbeHasItsBytes(t *testing.T) {
	got, err := codec.AppendProbe([]byte("kept"), []byte("\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"))
	require.NoError(t, err)
	insert := "\x01\x00\x06\x06\x17\x04\x15\x00\x00\x04\x11\x00\x00\x80\x00\x00\x00\x00\x09\x00\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"
	want := "kept" + insert +
		"\x04\x17" + insert[5:] + "\x04\x15" + insert[7:] + "\x04\x11" + insert[11:] + "\x04\x09" + insert[19:]
	require.Equal(t, want, string(got))

	dst := []byte("kept")
	got, err = codec.AppendProbe(dst, make([]byte, 241))
	require.EqualError(t, err, "codec: INSERT: probe tail is 241 bytes, at most 240 are allowed")
	require.ErrorIs(t, err, codec.ErrTooLarge)
	require.Equal(t, dst, got)
}

// For a server of any value size a probe must be five valid frames: an unknown op code
// would kill it.
func TestProbeIsValidForEveryValueSize(t *testing.T) {
	for _, tail := range [][]byte{nil, {0}, []byte("0123456789abcdef"), bytes.Repeat([]byte{0xff}, 240)} {
		probe, err := codec.AppendProbe(nil, tail)
		require.NoError(t, err)
		probeOn[uint8](t, probe)
		probeOn[uint16](t, probe)
		probeOn[uint32](t, probe)
		probeOn[uint64](t, probe)
	}
}

// probeOn executes a probe as a server of value size T.
func probeOn[T codec.Value](t *testing.T, probe []byte) {
	t.Helper()
	var responses []byte
	var created string
	dec := codec.NewDecoder[T](bytes.NewReader(probe))
	for i := range codec.ProbeResponses {
		req, err := dec.Request()
		require.NoError(t, err)
		if i == 0 {
			insert := req.(codec.Insert[T])
			ttl := insert.TTL.Duration()
			require.GreaterOrEqual(t, ttl, 6*time.Hour)
			require.Less(t, ttl, 200*365*24*time.Hour, "from now on, it fits the nanoseconds since 1970 of a server")
			created = string(insert.Key)
			responses = append(responses, 1)
			continue
		}
		if string(req.(codec.Purge).Key) == created {
			responses = append(responses, 1)
			created = "\x00none"
		} else {
			responses = append(responses, 0)
		}
	}
	_, err := dec.Request()
	require.Error(t, err)
	require.Equal(t, "\x00none", created, "the probe leaves nothing behind")
	size, n, err := codec.DecodeProbe(responses)
	require.NoError(t, err)
	require.Equal(t, codec.Size[T](), size)
	require.Equal(t, codec.ProbeResponses, n)
}

// ttlText is TTLOf with the text of the TTL and its duration.
func ttlText[T codec.Value](d time.Duration) (string, time.Duration, error) {
	ttl, err := codec.TTLOf[T](d)
	return ttl.String(), ttl.Duration(), err
}

func TestTTLOfChoosesTheFinestExactUnit(t *testing.T) {
	bySize := []func(time.Duration) (string, time.Duration, error){
		ttlText[uint8], ttlText[uint16], ttlText[uint32], ttlText[uint64],
	}
	const longest = time.Duration(math.MaxInt64) // some 292 years
	for _, tt := range []struct {
		d                     time.Duration
		one, two, four, eight string // by value size; "" is an error
	}{
		{1, "1ns", "1ns", "1ns", "1ns"},
		{255, "255ns", "255ns", "255ns", "255ns"},
		{256, "", "256ns", "256ns", "256ns"},
		{65536, "", "", "65536ns", "65536ns"},
		{time.Microsecond, "1µs", "1000ns", "1000ns", "1000ns"},
		{time.Millisecond, "1ms", "1000µs", "1000000ns", "1000000ns"},
		{time.Second, "1s", "1000ms", "1000000000ns", "1000000000ns"},
		{1500 * time.Millisecond, "", "1500ms", "1500000000ns", "1500000000ns"},
		{256 * time.Second, "", "256s", "256000000µs", "256000000000ns"},
		{300 * time.Second, "5m", "300s", "300000000µs", "300000000000ns"},
		{255 * time.Minute, "255m", "15300s", "15300000ms", "15300000000000ns"},
		{256 * time.Minute, "", "15360s", "15360000ms", "15360000000000ns"},
		{255 * time.Hour, "255h", "15300m", "918000000ms", "918000000000000ns"},
		{256 * time.Hour, "", "15360m", "921600000ms", "921600000000000ns"},
		{65535 * time.Hour, "", "65535h", "235926000s", "235926000000000000ns"},
		{65536 * time.Hour, "", "", "235929600s", "235929600000000000ns"},
		{time.Hour + 1, "", "", "", "3600000000001ns"},
		{longest, "", "", "", "9223372036854775807ns"},
		{longest.Truncate(time.Hour), "", "", "153722820m", "9223369200000000000ns"},
	} {
		for i, want := range []string{tt.one, tt.two, tt.four, tt.eight} {
			size := 1 << i
			got, d, err := bySize[i](tt.d)
			if want == "" {
				require.ErrorIs(t, err, codec.ErrTTLRange, "%v in %d bytes is %v", tt.d, size, got)
				continue
			}
			require.NoError(t, err, "%v in %d bytes", tt.d, size)
			require.Equal(t, want, got, "%v in %d bytes", tt.d, size)
			require.Equal(t, tt.d, d, "the TTL has the same duration")
		}
	}
}

func TestTTLOfErrorSaysWhatWouldDo(t *testing.T) {
	_, _, err := ttlText[uint8](65536)
	require.EqualError(t, err, "codec: TTL out of range: 65.536µs is not exact in any unit with a value size of 1, one of 4 would do")
	_, _, err = ttlText[uint16](65536 * time.Hour)
	require.EqualError(t, err, "codec: TTL out of range: 65536h0m0s is not exact in any unit with a value size of 2, one of 4 would do")
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		_, _, err := ttlText[uint64](d)
		require.ErrorIs(t, err, codec.ErrTTLRange)
		require.ErrorContains(t, err, "not positive")
	}
}

func TestDurationOfATTLStopsAtTheLongest(t *testing.T) {
	for _, tt := range []struct {
		ttl  codec.TTL[uint64]
		want time.Duration
	}{
		{codec.TTL[uint64]{Amount: 0, Unit: codec.Hours}, 0},
		{codec.TTL[uint64]{Amount: math.MaxInt64, Unit: codec.Nanoseconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: math.MaxInt64 + 1, Unit: codec.Nanoseconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: 9223372036, Unit: codec.Seconds}, 9223372036 * time.Second},
		{codec.TTL[uint64]{Amount: 9223372037, Unit: codec.Seconds}, math.MaxInt64},
		{codec.TTL[uint64]{Amount: math.MaxUint64, Unit: codec.Hours}, math.MaxInt64},
	} {
		require.Equal(t, tt.want, tt.ttl.Duration(), "%v", tt.ttl)
	}
	require.Equal(t, 255*time.Hour, codec.TTL[uint8]{Amount: 255, Unit: codec.Hours}.Duration())
}

func TestUnknownUnitCountsAsSeconds(t *testing.T) {
	for _, u := range []codec.Unit{0, 7, 255} {
		require.False(t, u.Known())
		require.Equal(t, 3*time.Second, codec.TTL[uint8]{Amount: 3, Unit: u}.Duration())
	}
	for u := codec.Nanoseconds; u <= codec.Hours; u++ {
		require.True(t, u.Known())
	}
}
