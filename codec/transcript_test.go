package codec_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// scenario is one of the conversations with a real server in mockserver/testdata.
type scenario struct {
	Name  string
	Steps []struct {
		Conn       int
		Send, Recv string
	}
}

func scenarios[T codec.Value](t *testing.T) []scenario {
	file, err := os.ReadFile(fmt.Sprintf("../mockserver/testdata/throttr-uint%d.json", 8*codec.Size[T]()))
	require.NoError(t, err)
	var rec struct{ Scenarios []scenario }
	require.NoError(t, json.Unmarshal(file, &rec))
	require.Len(t, rec.Scenarios, 20)
	return rec.Scenarios
}

func TestConversationsWithRealServersRoundTrip(t *testing.T) {
	t.Run("uint8", testConversations[uint8])
	t.Run("uint16", testConversations[uint16])
	t.Run("uint32", testConversations[uint32])
	t.Run("uint64", testConversations[uint64])
}

func testConversations[T codec.Value](t *testing.T) {
	seen := map[codec.Op]int{}
	for _, sc := range scenarios[T](t) {
		t.Run(sc.Name, func(t *testing.T) { replay[T](t, sc, seen) })
	}
	for _, op := range []codec.Op{
		codec.OpInsert, codec.OpQuery, codec.OpUpdate, codec.OpPurge, codec.OpSet, codec.OpGet,
		codec.OpList, codec.OpInfo, codec.OpStat, codec.OpStats, codec.OpSubscribe, codec.OpUnsubscribe, codec.OpPublish,
		codec.OpConnections, codec.OpConnection, codec.OpChannels, codec.OpChannel, codec.OpWhoAmI, codec.OpEvent,
	} {
		require.NotZero(t, seen[op], op)
	}
}

// replay decodes the requests of each step, and then their responses and the EVENTs, and
// counts them by op.
func replay[T codec.Value](t *testing.T, sc scenario, seen map[codec.Op]int) {
	pending := map[int]string{} // by connection: of a request in pieces
	for _, step := range sc.Steps {
		pending[step.Conn] += strings.ReplaceAll(step.Send, "{whoami}", strings.Repeat("?", 32))
		if step.Recv == "" {
			continue
		}
		send := varied(t, 0, pending[step.Conn])
		pending[step.Conn] = ""
		var kinds []codec.Kind
		var last codec.Op
		for src := send; len(src) > 0; {
			req, n, err := codec.DecodeRequest[T](src)
			require.NoError(t, err)
			requireBytes(t, src[:n], req)
			last = req.Op()
			require.Equal(t, byte(last), src[0])
			src = src[n:]
			seen[last]++
			kinds = append(kinds, req.ResponseKind())
		}
		for src := varied(t, last, step.Recv); len(src) > 0; {
			kind := codec.KindEvent
			if codec.Op(src[0]) == codec.OpEvent {
				seen[codec.OpEvent]++
			} else {
				require.NotEmpty(t, kinds, "a response without a request")
				kind, kinds = kinds[0], kinds[1:]
			}
			res, n, err := codec.DecodeResponse[T](kind, src)
			require.NoError(t, err)
			requireBytes(t, src[:n], res)
			src = src[n:]
		}
		require.Empty(t, kinds, "every request has a response")
	}
	for conn, rest := range pending {
		require.Empty(t, rest, "connection %d: not replayed", conn)
	}
}

func requireBytes(t *testing.T, want []byte, f codec.Frame) {
	got, err := f.AppendBinary(nil)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got))
}

// varied decodes hex digits. Bytes that varied from run to run, "??", are 0. Exceptions are
// the lengths of the names in the response to a CHANNELS: of "*", an id, and "c1", in any
// order.
func varied(t *testing.T, op codec.Op, digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "?", "0"))
	require.NoError(t, err)
	if op == codec.OpChannels {
		const head, entry = 1 + 3*8, 1 + 3*8
		for i, n := range []byte{1, 32, 2} {
			b[head+i*entry] = n
		}
	}
	return b
}

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
