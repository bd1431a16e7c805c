package codec_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/codec"
)

// A response to LIST can have any length. It is decoded fragment by fragment, here as it arrives in single bytes.
func ExampleFragmentDecoder() {
	response, _ := codec.ListResponse[uint16]{Fragments: [][]codec.ListEntry[uint16]{
		{{Key: []byte("user:42"), Unit: codec.Hours, Bytes: 2}, {Key: []byte("user:43"), Unit: codec.Hours, Bytes: 2}},
		{{Key: []byte("page"), Buffer: true, Unit: codec.Minutes, Bytes: 1200}},
	}}.AppendBinary(nil)
	conn := bufio.NewReader(bytes.NewReader(response))

	var d codec.ListDecoder[uint16]
	var rest []byte // received and not yet decoded
	for !d.Done() {
		entries, n, err := d.Decode(rest)
		rest = rest[n:]
		for _, e := range entries { // valid until the next call
			fmt.Printf("%s: %d bytes\n", e.Key, e.Bytes)
		}
		if errors.Is(err, codec.ErrShort) {
			var b byte
			b, err = conn.ReadByte()
			rest = append(rest, b)
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
