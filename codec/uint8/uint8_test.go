package uint8_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint8"
)

// The types are those of package codec: this compiles only if no conversion is needed.
var (
	_ codec.TTL[uint8.Value]           = uint8.TTL{}
	_ codec.Insert[uint8.Value]        = uint8.Insert{}
	_ codec.Update[uint8.Value]        = uint8.Update{}
	_ codec.Set[uint8.Value]           = uint8.Set{}
	_ codec.Event[uint8.Value]         = uint8.Event{}
	_ codec.Publish[uint8.Value]       = uint8.Publish{}
	_ codec.ListResponse[uint8.Value]  = uint8.ListResponse{}
	_ codec.ListEntry[uint8.Value]     = uint8.ListEntry{}
	_ *codec.ListDecoder[uint8.Value]  = (*uint8.ListDecoder)(nil)
	_ codec.QueryResponse[uint8.Value] = uint8.QueryResponse{}
	_ codec.GetResponse[uint8.Value]   = uint8.GetResponse{}
	_ *codec.Encoder[uint8.Value]      = (*uint8.Encoder)(nil)
	_ *codec.Decoder[uint8.Value]      = (*uint8.Decoder)(nil)
)

func TestValueSizeIsThatOfTheName(t *testing.T) {
	require.Equal(t, 1, uint8.Size)
	require.Equal(t, uint8.Size, codec.Size[uint8.Value]())
	require.Equal(t, ^uint8.Value(0), uint8.Max)
}

func TestMessagesRoundTripThroughAStream(t *testing.T) {
	ttl, err := uint8.TTLOf(time.Minute)
	require.NoError(t, err)
	insert := uint8.Insert{Key: []byte("k"), Quota: uint8.Max, TTL: ttl}
	response := uint8.QueryResponse{Found: true, Quota: uint8.Max, TTL: ttl}

	var wire bytes.Buffer
	require.NoError(t, uint8.NewEncoder(&wire).Encode(insert, response))
	src := bytes.Clone(wire.Bytes())
	dec := uint8.NewDecoder(&wire)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, err := dec.Response(codec.KindQuery)
	require.NoError(t, err)
	require.Equal(t, response, res)

	req, n, err := uint8.DecodeRequest(src)
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, _, err = uint8.DecodeResponse(codec.KindQuery, src[n:])
	require.NoError(t, err)
	require.Equal(t, response, res)
}

func Example() {
	frame, err := uint8.Insert{
		Key:   []byte("k"),
		Quota: 5,
		TTL:   uint8.TTL{Amount: 60, Unit: codec.Seconds},
	}.AppendBinary(nil)
	fmt.Printf("% x %v\n", frame, err)

	req, n, err := uint8.DecodeRequest(frame)
	fmt.Println(req.Op(), n, err)
	// Output:
	// 01 05 04 3c 01 6b <nil>
	// INSERT 6 <nil>
}
