package uint64_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint64"
)

// The types are those of package codec: this compiles only if no conversion is needed.
var (
	_ codec.TTL[uint64.Value]           = uint64.TTL{}
	_ codec.Insert[uint64.Value]        = uint64.Insert{}
	_ codec.Update[uint64.Value]        = uint64.Update{}
	_ codec.Set[uint64.Value]           = uint64.Set{}
	_ codec.Event[uint64.Value]         = uint64.Event{}
	_ codec.Publish[uint64.Value]       = uint64.Publish{}
	_ codec.ListResponse[uint64.Value]  = uint64.ListResponse{}
	_ codec.ListEntry[uint64.Value]     = uint64.ListEntry{}
	_ *codec.ListDecoder[uint64.Value]  = (*uint64.ListDecoder)(nil)
	_ codec.QueryResponse[uint64.Value] = uint64.QueryResponse{}
	_ codec.GetResponse[uint64.Value]   = uint64.GetResponse{}
	_ *codec.Encoder[uint64.Value]      = (*uint64.Encoder)(nil)
	_ *codec.Decoder[uint64.Value]      = (*uint64.Decoder)(nil)
)

func TestValueSizeIsThatOfTheName(t *testing.T) {
	require.Equal(t, 8, uint64.Size)
	require.Equal(t, uint64.Size, codec.Size[uint64.Value]())
	require.Equal(t, ^uint64.Value(0), uint64.Max)
}

func TestMessagesRoundTripThroughAStream(t *testing.T) {
	ttl, err := uint64.TTLOf(time.Minute)
	require.NoError(t, err)
	insert := uint64.Insert{Key: []byte("k"), Quota: uint64.Max, TTL: ttl}
	response := uint64.QueryResponse{Found: true, Quota: uint64.Max, TTL: ttl}

	var wire bytes.Buffer
	require.NoError(t, uint64.NewEncoder(&wire).Encode(insert, response))
	src := bytes.Clone(wire.Bytes())
	dec := uint64.NewDecoder(&wire)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, err := dec.Response(codec.KindQuery)
	require.NoError(t, err)
	require.Equal(t, response, res)

	req, n, err := uint64.DecodeRequest(src)
	require.NoError(t, err)
	require.Equal(t, insert, req)
	res, _, err = uint64.DecodeResponse(codec.KindQuery, src[n:])
	require.NoError(t, err)
	require.Equal(t, response, res)
}

func Example() {
	frame, err := uint64.Insert{
		Key:   []byte("k"),
		Quota: 5,
		TTL:   uint64.TTL{Amount: 60, Unit: codec.Seconds},
	}.AppendBinary(nil)
	fmt.Printf("% x %v\n", frame, err)

	req, n, err := uint64.DecodeRequest(frame)
	fmt.Println(req.Op(), n, err)
	// Output:
	// 01 05 00 00 00 00 00 00 00 04 3c 00 00 00 00 00 00 00 01 6b <nil>
	// INSERT 20 <nil>
}
