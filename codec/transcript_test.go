package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// A conversation of testdata/transcripts.json, recorded from a real server.
type transcript struct {
	ValueSize int    `json:"value_size"`
	Scenario  string `json:"scenario"`
	Send      string `json:"send"`
	Recv      string `json:"recv"`
}

func TestARealServersConversationsDecodeAndEncodeToTheSameBytes(t *testing.T) {
	file, err := os.ReadFile("testdata/transcripts.json")
	require.NoError(t, err)
	var all []transcript
	require.NoError(t, json.Unmarshal(file, &all))
	require.Len(t, all, 4*18)
	for _, tr := range all {
		t.Run(tr.Scenario+"/"+strconv.Itoa(tr.ValueSize), func(t *testing.T) {
			send, err := hex.DecodeString(tr.Send)
			require.NoError(t, err)
			// Any digits do for what varied.
			recv, err := hex.DecodeString(strings.ReplaceAll(tr.Recv, "?", "0"))
			require.NoError(t, err)
			switch tr.ValueSize {
			case 1:
				replay[uint8](t, send, recv)
			case 2:
				replay[uint16](t, send, recv)
			case 4:
				replay[uint32](t, send, recv)
			case 8:
				replay[uint64](t, send, recv)
			default:
				t.Fatalf("value size %d", tr.ValueSize)
			}
		})
	}
}

// replay decodes the requests, then the responses to them.
func replay[T codec.Value](t *testing.T, send, recv []byte) {
	var kinds []codec.Kind
	var again []byte
	dec := codec.NewDecoder[T](bytes.NewReader(send))
	for {
		req, err := dec.Request()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		kinds = append(kinds, req.ResponseKind())
		again, err = req.AppendBinary(again)
		require.NoError(t, err)
	}
	require.Equal(t, hex.EncodeToString(send), hex.EncodeToString(again))

	again = nil
	dec = codec.NewDecoder[T](bytes.NewReader(recv))
	for _, kind := range kinds {
		res, err := dec.Response(kind)
		require.NoError(t, err)
		again, err = res.AppendBinary(again)
		require.NoError(t, err)
	}
	_, err := dec.Response(codec.KindStatus)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, hex.EncodeToString(recv), hex.EncodeToString(again))
}
