package codec_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing/iotest"

	"github.com/throttr-go/throttr/codec"
)

// A response to LIST of any length can be decoded with a buffer of any size. Here the bytes
// arrive one at a time, in a buffer of 16.
func ExampleFragmentDecoder() {
	response, _ := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{
		{{Key: []byte("user:42"), Unit: codec.Hours, Bytes: 2}, {Key: []byte("user:43"), Unit: codec.Hours, Bytes: 2}},
		{{Key: []byte("page"), Buffer: true, Unit: codec.Minutes, Bytes: 1200}},
	}}.AppendBinary(nil)
	conn := iotest.OneByteReader(bytes.NewReader(response))

	var d codec.ListDecoder[uint16]
	buf := make([]byte, 16)
	lo, hi := 0, 0
	for !d.Done() {
		entries, n, err := d.Decode(buf[lo:hi])
		lo += n
		for _, e := range entries { // valid until the next call
			fmt.Printf("%s: %d bytes\n", e.Key, e.Bytes)
		}
		if errors.Is(err, codec.ErrShort) { // all of buf was taken
			lo = 0
			hi, err = conn.Read(buf)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// user:42: 2 bytes
	// user:43: 2 bytes
	// page: 1200 bytes
}

func ExampleConnID() {
	response := []byte("\x01\xa9\x2c\x0a\xfc\x63\x89\x4b\x28\xb7\xe2\x12\x27\x8a\xff\x1c\x01")
	me, _, err := codec.DecodeWhoAmIResponse(response)
	fmt.Println(me.ID, err)
	// Output: a92c0afc63894b28b7e212278aff1c01 <nil>
}
