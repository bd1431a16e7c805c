package codec

// Subscribe subscribes the connection to a channel: it gets an [Event] for each [Publish].
// A client sends it; the response is a [Status]. A connection that subscribes twice gets
// each EVENT twice (H10).
//
//	11 · channel length 1 · channel
type Subscribe struct {
	Channel []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpSubscribe].
func (Subscribe) Op() Op { return OpSubscribe }

// ResponseKind returns [KindStatus].
func (Subscribe) ResponseKind() Kind { return KindStatus }

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, dst is returned as it was.
func (m Subscribe) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpSubscribe, m.Channel)
}
