package codec_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// A client encodes a request, and decodes the response as the request's ResponseKind.
func Example() {
	query := codec.Query{Key: []byte("user:42")}
	frame, err := query.AppendBinary(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("sent %x\n", frame)

	received := []byte{0x01, 0x02, 0x00, 0x04, 0x3b, 0x00}
	res, n, err := codec.DecodeResponse[uint16](query.ResponseKind(), received)
	if err != nil {
		fmt.Println(err)
		return
	}
	response := res.(codec.QueryResponse[uint16])
	fmt.Printf("took %d bytes: quota %d, %v left\n", n, response.Quota, response.TTL)
	// Output:
	// sent 0207757365723a3432
	// took 6 bytes: quota 2, 59s left
}

// A server does not know which request comes next, or whether it has arrived completely.
func ExampleDecodeRequest() {
	received := []byte("\x02\x03key\x04\x03k")
	for len(received) > 0 {
		req, n, err := codec.DecodeRequest[uint16](received)
		if errors.Is(err, codec.ErrShort) {
			fmt.Printf("%d bytes wait for more\n", len(received))
			break
		}
		if err != nil {
			fmt.Println(err)
			break
		}
		switch req := req.(type) {
		case codec.Query:
			fmt.Printf("%v %s\n", req.Op(), req.Key)
		case codec.Purge:
			fmt.Printf("%v %s\n", req.Op(), req.Key)
		}
		received = received[n:]
	}
	// Output:
	// QUERY key
	// 3 bytes wait for more
}

// A DecodeError says where and why bytes are not a response.
func ExampleDecodeResponse() {
	for _, received := range [][]byte{{0x01}, {}, {0x48}} {
		res, _, err := codec.DecodeResponse[uint8](codec.KindStatus, received)
		fmt.Println(res, err)
	}
	// Output:
	// true <nil>
	// <nil> codec: frame is incomplete
	// <nil> codec: malformed frame: status is 0x48 at offset 0
}

// If the op is known, the decoder of one message does not allocate.
func ExampleDecodeInsert() {
	frame := []byte("\x01\x05\x00\x04\x3c\x00\x07user:42")
	insert, n, err := codec.DecodeInsert[uint16](frame)
	fmt.Printf("%s: quota %d for %v, %d bytes, %v\n", insert.Key, insert.Quota, insert.TTL, n, err)
	// Output: user:42: quota 5 for 60s, 14 bytes, <nil>
}

func ExampleTTLOf() {
	for _, d := range []time.Duration{30 * time.Second, 90 * time.Minute, 256 * time.Second} {
		ttl, err := codec.TTLOf[uint8](d)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(d, "is", ttl)
	}
	// Output:
	// 30s is 30s
	// 1h30m0s is 90m
	// codec: TTL out of range: 4m16s is not exact in any unit with a value size of 1, one of 2 would do
}

// Several frames are sent in one write.
func ExampleNewEncoder() {
	var wire bytes.Buffer
	enc := codec.NewEncoder[uint16](&wire)
	err := enc.Encode(
		codec.Update[uint16]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: []byte("k")},
		codec.Query{Key: []byte("k")},
	)
	fmt.Printf("%x %v\n", wire.Bytes(), err)

	err = enc.Encode(codec.Purge{Key: make([]byte, 300)})
	fmt.Println(err)
	// Output:
	// 0300010100016b02016b <nil>
	// codec: PURGE: key is 300 bytes, at most 255 are allowed
}

// An EVENT can come before the response.
func ExampleNewDecoder() {
	dec := codec.NewDecoder[uint16](bytes.NewReader([]byte("\x19\x04\x05\x00newshello\x01")))
	for {
		res, err := dec.Response(codec.KindStatus)
		if err != nil {
			fmt.Println(err)
			break
		}
		switch res := res.(type) {
		case codec.Event[uint16]:
			fmt.Printf("%s: %s\n", res.Channel, res.Payload)
		case codec.Status:
			fmt.Println("success:", res == codec.Success)
		}
	}
	// Output:
	// news: hello
	// success: true
	// EOF
}

// The probe comes first on a connection: does the server have the client's value size?
func ExampleAppendProbe() {
	tail := []byte("16 random bytes.") // from crypto/rand in earnest
	probe, err := codec.AppendProbe(nil, tail)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = probe // written to the server, which responses with ProbeResponses bytes

	responses := []byte{0x01, 0x00, 0x00, 0x01, 0x00}
	size, _, err := codec.DecodeProbe(responses)
	if err != nil {
		fmt.Println(err)
		return
	}
	if size != codec.Size[uint16]() {
		fmt.Printf("the server's values are %d bytes wide, ours %d\n", size, codec.Size[uint16]())
	}
	// Output: the server's values are 4 bytes wide, ours 2
}

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
