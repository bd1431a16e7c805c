package uint16_test

import (
	"fmt"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/codec/uint16"
)

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
