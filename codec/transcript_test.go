package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

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
