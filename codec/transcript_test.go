package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// recordedResponses is what is compared here of testdata/responses-uint16.json.
type recordedResponses struct {
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

// A response of a real server has its bytes again, also if a Decoder reads it: its buffer grows for one that is longer.
func TestLargeResponsesOfARealServerRoundTrip(t *testing.T) {
	rec := readRecorded(t)
	all := []string{rec.List, rec.Stats, rec.Connections, rec.Channels, rec.Channel, rec.Info, rec.WhoAmI, "01", rec.List}
	kinds := []codec.Kind{
		codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels, codec.KindChannel, codec.KindInfo,
		codec.KindWhoAmI, codec.KindStatus, codec.KindList,
	}
	src := unhex(t, strings.Join(all, ""))
	for _, r := range []io.Reader{bytes.NewReader(src), iotest.HalfReader(bytes.NewReader(src))} {
		dec := codec.NewDecoder[uint16](r)
		for i, kind := range kinds {
			res, err := dec.Response(kind)
			require.NoError(t, err)
			require.Equal(t, kind, res.Kind())
			again, err := res.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, all[i], hex.EncodeToString(again), kind)
		}
		_, err := dec.Response(codec.KindStatus)
		require.ErrorIs(t, err, io.EOF)
	}
}
