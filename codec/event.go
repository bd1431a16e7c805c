package codec

// Event carries a published payload to a subscriber. A server sends it unasked, between
// any two responses (H8): every connection is subscribed to the channel "*" and to the
// channel of its own id. The first byte distinguishes the two: 19 begins an EVENT, 00 and
// 01 begin a response.
//
//	19 · channel length 1 · payload length N · channel · payload
type Event[T Value] struct {
	Channel []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Payload []byte // its length fits T, and the frame MaxFrame; aliases the input when decoded
}

// Kind returns [KindEvent].
func (Event[T]) Kind() Kind { return KindEvent }

func (Event[T]) valueSize() int { return Size[T]() }

// DecodeEvent decodes the EVENT at the start of src and returns it and its
// length in bytes. Errors: [ErrShort], [ErrMalformed].
func DecodeEvent[T Value](src []byte) (m Event[T], n int, err error) {
	return decodePayloadFrame[T](src, OpEvent)
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, the payload or the frame, dst is returned as it was.
func (m Event[T]) AppendBinary(dst []byte) ([]byte, error) {
	return appendPayloadFrame[T](dst, OpEvent, m.Channel, m.Payload)
}
