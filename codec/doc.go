// Package codec encodes and decodes the frames of the Throttr protocol.
//
// A Throttr server is compiled for one value size: every quota, amount of time
// and payload length on its wire is N = 1, 2, 4 or 8 bytes wide, little-endian.
// Frames that carry such a number are generic over it; the packages
// codec/uint8, codec/uint16, codec/uint32 and codec/uint64 instantiate them.
//
//	buf, err := codec.Insert[uint16]{Key: []byte("k"), Quota: 5, TTL: ttl}.AppendBinary(nil)
//	req, n, err := codec.DecodeRequest[uint16](buf)
//
// Each message has a file of its own, with the struct, who sends it, its byte
// layout, its decoder and its encoder, in this order. Both directions are here:
// a client encodes requests and decodes responses, a server does the opposite.
//
// # Decoding
//
// A decoder takes the bytes received so far and returns the message and how
// many bytes it took. [ErrShort] means that the bytes are a proper beginning and
// more are needed. Every other error is final: more bytes can't mend the frame.
// It wraps [ErrUnknownOp] or [ErrMalformed] and, as a [*DecodeError], names the
// offset and the field. Keys and payloads of a decoded message alias the input.
//
// The answers to LIST, STATS, CONNECTIONS and CHANNELS come in fragments and can be
// of any size. A [ListDecoder] or one of its siblings takes such an answer as it
// arrives, and keeps one fragment of it. Their whole decoders, such as
// [DecodeListResponse], start from the beginning each time.
//
// # Encoding
//
// AppendBinary appends the frame to the slice it is given. A frame that the
// protocol can't carry (a key over [MaxKey] bytes, a payload whose length does
// not fit N bytes, a frame over [MaxFrame] bytes) is refused with a
// [*SizeError], and the slice comes back unchanged. The bound on a frame is one on
// requests and EVENTs: an answer can be longer.
//
// # Allocations
//
// Nothing here allocates, save for
//   - the growth of the slice to append to;
//   - the interface values that [DecodeRequest] and [DecodeResponse] return;
//   - what is a slice or a string in an answer to LIST, STATS, CONNECTIONS,
//     CONNECTION, CHANNELS, CHANNEL or INFO, and only once all of it has arrived;
//   - what a [FragmentDecoder] keeps: no more than has arrived of a fragment. It is
//     used again for the next one.
//
// The decoders of any other single message, such as [DecodeInsert], never allocate.
package codec
