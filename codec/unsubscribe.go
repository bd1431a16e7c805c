package codec

// Unsubscribe ends all subscriptions of the connection to a channel. A client sends it; the
// response is a [Status]. It fails only if the channel has no subscriptions, those of other
// connections included (H10).
//
//	12 · channel length 1 · channel
type Unsubscribe struct {
	Channel []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpUnsubscribe].
func (Unsubscribe) Op() Op { return OpUnsubscribe }

// ResponseKind returns [KindStatus].
func (Unsubscribe) ResponseKind() Kind { return KindStatus }

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, dst is returned as it was.
func (m Unsubscribe) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpUnsubscribe, m.Channel)
}
