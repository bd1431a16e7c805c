// Package codec encodes and decodes the frames of the Throttr protocol.
//
// A Throttr server is compiled for one value size N: 1, 2, 4 or 8. Quotas, amounts of
// time and the lengths of values and payloads are N bytes wide. All numbers are
// little-endian and unsigned. Frames that carry a number of N bytes are generic over it;
// the packages codec/uint8, codec/uint16, codec/uint32 and codec/uint64 instantiate them.
//
//	buf, err := codec.Insert[uint16]{Key: []byte("k"), Quota: 5, TTL: ttl}.AppendBinary(nil)
//	req, n, err := codec.DecodeRequest[uint16](buf)
//
// Each request has a file of its own, together with its response. For both of them it
// says which side sends it and shows the layout of its bytes: fields are separated by
// "·", and the number behind a field's name is its width in bytes ("u64" is 8 bytes).
// Clients encode requests and decode responses; servers do the opposite. The package
// serves both.
//
// # Decoding
//
// A decoder takes the bytes received so far, and returns the message and its length in
// bytes. [ErrShort] means that the frame is not complete: call the decoder again once
// more bytes have arrived. Every other error is final. It is a [*DecodeError] that names
// the offset and the field, and matches [ErrUnknownOp] or [ErrMalformed]. Keys, channels,
// values and payloads of a decoded message alias the input.
//
// The responses to LIST, STATS, CONNECTIONS and CHANNELS come in fragments and can have
// any length. [ListDecoder], [StatsDecoder], [ConnectionsDecoder] and [ChannelsDecoder]
// decode such a response fragment by fragment. The decoders of whole
// responses, such as [DecodeListResponse], start from the beginning at each call.
//
// # Encoding
//
// AppendBinary appends the frame to a slice. It returns a [*SizeError], and the slice
// unchanged, for a frame that the protocol can't carry: a key or channel over [MaxKey]
// bytes, a value or payload whose length does not fit N bytes, a frame over [MaxFrame]
// bytes. Only responses that list something can be longer than that.
//
// # Allocations
//
// Only these allocate:
//   - AppendBinary, if the slice has to grow;
//   - [DecodeRequest] and [DecodeResponse], for the interface value that they return;
//   - the decoders of the responses to LIST, STATS, CONNECTIONS, CONNECTION, CHANNELS,
//     CHANNEL and INFO, for slices and strings, once the whole response has arrived;
//   - [FragmentDecoder], for the entries of a fragment. It reuses that memory for
//     the next fragment.
package codec
