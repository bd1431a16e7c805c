package codec

// Event carries a published payload to a subscriber. Sent by servers, unasked,
// between any two responses (H8): every connection is subscribed to the channel
// "*" and to its own id. Where a response may begin, the first byte tells them
// apart: 19 is an EVENT, 00 and 01 are responses.
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
	size := Size[T]()
	if len(src) == 0 {
		return m, 0, ErrShort
	}
	if src[0] != byte(OpEvent) {
		return m, 0, wrongOp(src[0])
	}
	head := 2 + size
	if len(src) < head {
		return m, 0, ErrShort
	}
	payload := head + int(src[1])
	n, err = frameLength(payload, uint64(getValue[T](src[2:])))
	if err != nil {
		return m, 0, err
	}
	if len(src) < n {
		return m, 0, ErrShort
	}
	m.Channel = src[head:payload:payload]
	m.Payload = src[payload:n:n]
	return m, n, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, the payload or the frame, dst is returned as it was.
func (m Event[T]) AppendBinary(dst []byte) ([]byte, error) {
	head := 2 + Size[T]()
	if err := checkPayload[T](OpEvent, "channel", m.Channel, "payload", m.Payload, head); err != nil {
		return dst, err
	}
	dst = reserve(dst, head+len(m.Channel)+len(m.Payload))
	b := dst[len(dst) : len(dst)+head]
	b[0], b[1] = byte(OpEvent), byte(len(m.Channel))
	putValue(b[2:], T(len(m.Payload)))
	dst = append(dst[:len(dst)+head], m.Channel...)
	return append(dst, m.Payload...), nil
}
