package uint32_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint32"
)

// The types are those of package codec: this compiles only if no conversion is needed.
var (
	_ codec.TTL[uint32.Value]           = uint32.TTL{}
	_ codec.Insert[uint32.Value]        = uint32.Insert{}
	_ codec.Update[uint32.Value]        = uint32.Update{}
	_ codec.Set[uint32.Value]           = uint32.Set{}
	_ codec.Event[uint32.Value]         = uint32.Event{}
	_ codec.Publish[uint32.Value]       = uint32.Publish{}
	_ codec.ListResponse[uint32.Value]  = uint32.ListResponse{}
	_ codec.ListEntry[uint32.Value]     = uint32.ListEntry{}
	_ *codec.ListDecoder[uint32.Value]  = (*uint32.ListDecoder)(nil)
	_ codec.QueryResponse[uint32.Value] = uint32.QueryResponse{}
	_ codec.GetResponse[uint32.Value]   = uint32.GetResponse{}
	_ *codec.Encoder[uint32.Value]      = (*uint32.Encoder)(nil)
	_ *codec.Decoder[uint32.Value]      = (*uint32.Decoder)(nil)
)

func TestValueSizeIsThatOfTheName(t *testing.T) {
	require.Equal(t, 4, uint32.Size)
	require.Equal(t, uint32.Size, codec.Size[uint32.Value]())
	require.Equal(t, ^uint32.Value(0), uint32.Max)
}

func TestMessagesRoundTripThroughAStream(t *testing.T) {
	ttl, err := uint32.TTLOf(time.Minute)
	require.NoError(t, err)
	insert := uint32.Insert{Key: []byte("k"), Quota: uint32.Max, TTL: ttl}
	response := uint32.QueryResponse{Found: true, Quota: uint32.Max, TTL: ttl}

	var wire bytes.Buffer
	require.NoError(t, uint32.NewEncoder(&wire).Encode(insert, response))
	src := bytes.Clone(wire.Bytes())
	dec := uint32.NewDecoder(&wire)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, err := dec.Response(codec.KindQuery)
	require.NoError(t, err)
	require.Equal(t, response, res)

	req, n, err := uint32.DecodeRequest(src)
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, _, err = uint32.DecodeResponse(codec.KindQuery, src[n:])
	require.NoError(t, err)
	require.Equal(t, response, res)
}

func Example() {
	frame, err := uint32.Insert{
		Key:   []byte("k"),
		Quota: 5,
		TTL:   uint32.TTL{Amount: 60, Unit: codec.Seconds},
	}.AppendBinary(nil)
	fmt.Printf("% x %v\n", frame, err)

	req, n, err := uint32.DecodeRequest(frame)
	fmt.Println(req.Op(), n, err)
	// Output:
	// 01 05 00 00 00 04 3c 00 00 00 01 6b <nil>
	// INSERT 12 <nil>
}
