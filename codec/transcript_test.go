package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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

func TestLargeResponsesOfARealServerRoundTrip(t *testing.T) {
	rec := readRecorded(t)
	for kind, text := range map[codec.Kind]string{
		codec.KindList: rec.List, codec.KindStats: rec.Stats, codec.KindConnections: rec.Connections,
		codec.KindChannels: rec.Channels, codec.KindChannel: rec.Channel, codec.KindInfo: rec.Info, codec.KindWhoAmI: rec.WhoAmI,
	} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			src := unhex(t, text)
			res, n, err := codec.DecodeResponse[uint16](kind, src)
			require.NoError(t, err)
			require.Equal(t, len(src), n)
			again, err := res.AppendBinary(nil)
			require.NoError(t, err)
			require.Equal(t, text, hex.EncodeToString(again))
			for i := 0; i < len(src); i += 1 + i/50 {
				res, n, err := codec.DecodeResponse[uint16](kind, src[:i:i])
				if !(res == nil && n == 0 && errors.Is(err, codec.ErrShort)) {
					t.Fatalf("the first %d bytes: %v, %d, %v", i, res, n, err)
				}
			}
		})
	}
}

// The buffer of a Decoder grows for a response that is longer.
func TestDecoderReadsLargeResponse(t *testing.T) {
	rec := readRecorded(t)
	src := unhex(t, rec.List+rec.Stats+"01"+rec.List)
	for _, r := range []io.Reader{bytes.NewReader(src), iotest.HalfReader(bytes.NewReader(src))} {
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
