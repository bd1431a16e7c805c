package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// recordedResponses is testdata/responses-uint16.json.
type recordedResponses struct {
	Keys        map[string][2]any // a type, and a quota or length
	ChannelList []string          `json:"channels"`
	Subscribers int               `json:"multi_subscribers"`
	Count       int               `json:"connections"`
	List        string
	Stats       string
	Connections string `json:"connections_response"`
	Channels    string `json:"channels_response"`
	Channel     string `json:"channel_multi"`
	Info        string
	WhoAmI      string `json:"whoami"`
}

func readRecorded(t testing.TB) (rec recordedResponses) {
	file, err := os.ReadFile("testdata/responses-uint16.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(file, &rec))
	return rec
}

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestLargeResponsesOfARealServerRoundTrip(t *testing.T) {
	rec := readRecorded(t)
	for kind, text := range map[codec.Kind]string{
		codec.KindList: rec.List, codec.KindStats: rec.Stats, codec.KindConnections: rec.Connections,
		codec.KindChannels: rec.Channels, codec.KindChannel: rec.Channel, codec.KindInfo: rec.Info, codec.KindWhoAmI: rec.WhoAmI,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			src := unhex(t, text)
			res, n, err := codec.DecodeResponse[uint16](kind, src)
			require.NoError(t, err)
			require.Equal(t, len(src), n)
			again, err := res.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, text, hex.EncodeToString(again))
			for i := range src {
				res, n, err := codec.DecodeResponse[uint16](kind, src[:i:i])
				if !(res == nil && n == 0 && err == codec.ErrShort) {
					t.Fatalf("the first %d bytes: %v, %d, %v", i, res, n, err)
				}
			}
		})
	}
}

func TestLargeListHasAllKeys(t *testing.T) {
	rec := readRecorded(t)
	list, _, err := codec.DecodeListResponse[uint16](unhex(t, rec.List))
	require.NoError(t, err)
	require.Len(t, list.Fragments, 6)
	seen := 0
	for e := range list.All() {
		seen++
		want, ok := rec.Keys[string(e.Key)]
		require.True(t, ok, "%q", e.Key)
		require.Equal(t, want[0] == "buffer", e.Buffer)
		require.Equal(t, codec.Hours, e.Unit)
		if e.Buffer {
			require.InDelta(t, want[1], e.Bytes, 0)
		} else {
			require.EqualValues(t, 2, e.Bytes)
		}
	}
	require.Equal(t, len(rec.Keys), seen)
	stats, _, err := codec.DecodeStatsResponse(unhex(t, rec.Stats))
	require.NoError(t, err)
	for e := range stats.All() {
		seen--
		require.Contains(t, rec.Keys, string(e.Key))
		require.Zero(t, e.Usage)
	}
	require.Zero(t, seen)
	for range list.All() {
		break // one can leave
	}
}

func TestLargeConnectionsListHasAllConnections(t *testing.T) {
	rec := readRecorded(t)
	me, _, err := codec.DecodeWhoAmIResponse(unhex(t, rec.WhoAmI))
	require.NoError(t, err)
	conns, _, err := codec.DecodeConnectionsResponse(unhex(t, rec.Connections))
	require.NoError(t, err)
	all := slices.Collect(conns.All())
	require.Len(t, all, rec.Count)
	ids := map[string]bool{}
	for _, c := range all {
		ids[c.ID.String()] = true
		require.Equal(t, codec.ClientConnection, c.Type)
		require.Equal(t, codec.TCP, c.Transport)
		require.EqualValues(t, 4, c.IPVersion)
		require.Equal(t, "127.0.0.1", c.IP)
		require.NotZero(t, c.Port)
		if c.ID == me.ID {
			require.EqualValues(t, 200, c.Requests.Insert)
			require.EqualValues(t, 100, c.Requests.Set)
			require.EqualValues(t, 1, c.Requests.Connections)
		}
	}
	require.True(t, ids[me.ID.String()])

	channels, _, err := codec.DecodeChannelsResponse(unhex(t, rec.Channels))
	require.NoError(t, err)
	subscribed := map[string]uint64{}
	for c := range channels.All() {
		subscribed[string(c.Name)] = c.Connections
	}
	require.Len(t, subscribed, len(rec.ChannelList)+2+rec.Count)
	require.EqualValues(t, rec.Subscribers, subscribed["multi"])
	require.EqualValues(t, rec.Count, subscribed["*"])
	for id := range ids {
		require.EqualValues(t, 1, subscribed[id])
	}
	multi, _, err := codec.DecodeChannelResponse(unhex(t, rec.Channel))
	require.NoError(t, err)
	require.Len(t, multi.Subscribers, rec.Subscribers)
	for _, s := range multi.Subscribers {
		require.True(t, ids[s.ID.String()])
	}

	info, _, err := codec.DecodeInfoResponse(unhex(t, rec.Info))
	require.NoError(t, err)
	require.Equal(t, "5.0.11", info.Version)
	require.EqualValues(t, len(rec.Keys), info.Keys)
	require.EqualValues(t, 200, info.Requests.Insert.Total)
	require.EqualValues(t, 411, info.Requests.All.Total)
	require.EqualValues(t, rec.Count, info.Connections)
	require.Equal(t, info.Keys, info.Counters+info.Buffers)
}

// The buffer of a Decoder grows for a response that is longer.
func TestDecoderReadsLargeResponse(t *testing.T) {
	rec := readRecorded(t)
	src := unhex(t, rec.List+rec.Stats+"01"+rec.List)
	for _, r := range []io.Reader{bytes.NewReader(src), iotest.HalfReader(bytes.NewReader(src)), iotest.OneByteReader(bytes.NewReader(src))} {
		dec := codec.NewDecoder[uint16](r)
		var again []byte
		for _, kind := range []codec.Kind{codec.KindList, codec.KindStats, codec.KindStatus, codec.KindList} {
			res, err := dec.Response(kind)
			require.NoError(t, err)
			require.Equal(t, kind, res.Kind())
			again, err = res.AppendBinary(again)
			require.NoError(t, err)
		}
		require.Equal(t, src, again)
		_, err := dec.Response(codec.KindStatus)
		require.ErrorIs(t, err, io.EOF)
	}
}
