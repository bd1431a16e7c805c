package uint16_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
)

// The types are those of package codec: this compiles only if no conversion is needed.
var (
	_ codec.TTL[uint16.Value]           = uint16.TTL{}
	_ codec.Insert[uint16.Value]        = uint16.Insert{}
	_ codec.Update[uint16.Value]        = uint16.Update{}
	_ codec.Set[uint16.Value]           = uint16.Set{}
	_ codec.Event[uint16.Value]         = uint16.Event{}
	_ codec.Publish[uint16.Value]       = uint16.Publish{}
	_ codec.ListResponse[uint16.Value]  = uint16.ListResponse{}
	_ codec.ListEntry[uint16.Value]     = uint16.ListEntry{}
	_ *codec.ListDecoder[uint16.Value]  = (*uint16.ListDecoder)(nil)
	_ codec.QueryResponse[uint16.Value] = uint16.QueryResponse{}
	_ codec.GetResponse[uint16.Value]   = uint16.GetResponse{}
	_ *codec.Encoder[uint16.Value]      = (*uint16.Encoder)(nil)
	_ *codec.Decoder[uint16.Value]      = (*uint16.Decoder)(nil)
)

func TestValueSizeIsThatOfTheName(t *testing.T) {
	require.Equal(t, 2, uint16.Size)
	require.Equal(t, uint16.Size, codec.Size[uint16.Value]())
	require.Equal(t, ^uint16.Value(0), uint16.Max)
}

func TestMessagesRoundTripThroughAStream(t *testing.T) {
	ttl, err := uint16.TTLOf(time.Minute)
	require.NoError(t, err)
	insert := uint16.Insert{Key: []byte("k"), Quota: uint16.Max, TTL: ttl}
	response := uint16.QueryResponse{Found: true, Quota: uint16.Max, TTL: ttl}

	var wire bytes.Buffer
	require.NoError(t, uint16.NewEncoder(&wire).Encode(insert, response))
	src := bytes.Clone(wire.Bytes())
	dec := uint16.NewDecoder(&wire)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, err := dec.Response(codec.KindQuery)
	require.NoError(t, err)
	require.Equal(t, response, res)

	req, n, err := uint16.DecodeRequest(src)
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, _, err = uint16.DecodeResponse(codec.KindQuery, src[n:])
	require.NoError(t, err)
	require.Equal(t, response, res)
}

func Example() {
	frame, err := uint16.Insert{
		Key:   []byte("k"),
		Quota: 5,
		TTL:   uint16.TTL{Amount: 60, Unit: codec.Seconds},
	}.AppendBinary(nil)
	fmt.Printf("% x %v\n", frame, err)

	req, n, err := uint16.DecodeRequest(frame)
	fmt.Println(req.Op(), n, err)
	// Output:
	// 01 05 00 04 3c 00 01 6b <nil>
	// INSERT 8 <nil>
}
