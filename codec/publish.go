package codec

// Publish sends a payload to all subscribers of a channel, each of which gets an [Event].
// A client sends it; the response is a [Status]. It fails if there are no subscribers. A
// publisher that is subscribed itself gets its EVENT before the status.
//
//	13 · channel length 1 · payload length N · channel · payload
type Publish[T Value] struct {
	Channel []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	Payload []byte // its length fits T, and the frame MaxFrame; aliases the input when decoded
}

// Op returns [OpPublish].
func (Publish[T]) Op() Op { return OpPublish }

// ResponseKind returns [KindStatus].
func (Publish[T]) ResponseKind() Kind { return KindStatus }

func (Publish[T]) valueSize() int { return Size[T]() }

// decodePublish decodes a PUBLISH.
func decodePublish[T Value](src []byte) (m Publish[T], n int, err error) {
	event, n, err := decodePayloadFrame[T](src, OpPublish)
	return Publish[T](event), n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, the payload or the frame, dst is returned as it was.
func (m Publish[T]) AppendBinary(dst []byte) ([]byte, error) {
	return appendPayloadFrame[T](dst, OpPublish, m.Channel, m.Payload)
}
