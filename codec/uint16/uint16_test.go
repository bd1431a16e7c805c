package uint16_test

import (
	"fmt"
	"testing"

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
