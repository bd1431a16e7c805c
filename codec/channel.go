package codec

import "encoding/binary"

// Channel lists the subscriptions to a channel. A client sends it; the response is a
// [ChannelResponse].
//
//	17 · channel length 1 · channel
type Channel struct {
	Name []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
}

// Op returns [OpChannel].
func (Channel) Op() Op { return OpChannel }

// ResponseKind returns [KindChannel].
func (Channel) ResponseKind() Kind { return KindChannel }

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// channel, dst is returned as it was.
func (m Channel) AppendBinary(dst []byte) ([]byte, error) {
	return appendKeyFrame(dst, OpChannel, m.Name)
}

// ChannelResponse is the response to a [Channel]. A server sends it.
//
//	00
//	01 · n u64 · n × (id 16 · since u64 · read bytes u64 · write bytes u64)
type ChannelResponse struct {
	Found       bool         // if false, there are no subscriptions, and the rest is zero
	Subscribers []Subscriber // one for each subscription, in the order of the wire
}

// Subscriber is a subscription in a [ChannelResponse].
type Subscriber struct {
	ID         ConnID
	Since      uint64 // when it began, in ns since 1970
	ReadBytes  uint64 // bytes of the payloads published on the channel since then
	WriteBytes uint64 // bytes; 0 in all responses of real servers
}

const subscriberSize = 16 + 3*8

// Kind returns [KindChannel].
func (ChannelResponse) Kind() Kind { return KindChannel }

// DecodeChannelResponse decodes the response to a CHANNEL at the start of src and
// returns it and its length in bytes. It allocates the subscribers once all have
// arrived. Errors: [ErrShort], a [*ShortError] once their number is there; [ErrMalformed].
func DecodeChannelResponse(src []byte) (m ChannelResponse, n int, err error) {
	ok, err := found(src)
	if err != nil {
		return m, 0, err
	}
	if !ok {
		return m, 1, nil
	}
	if len(src) < 9 {
		return m, 0, ErrShort
	}
	count := binary.LittleEndian.Uint64(src[1:])
	if need := lengthOf(9, count, subscriberSize); len(src) < need {
		return m, 0, &ShortError{need}
	}
	m.Found = true
	m.Subscribers = make([]Subscriber, count)
	n = 9
	for i := range m.Subscribers {
		s := &m.Subscribers[i]
		copy(s.ID[:], src[n:])
		getNumbers(src[n+16:], &s.Since, &s.ReadBytes, &s.WriteBytes)
		n += subscriberSize
	}
	return m, n, nil
}

// AppendBinary appends the frame to dst. It never fails.
func (m ChannelResponse) AppendBinary(dst []byte) ([]byte, error) {
	if !m.Found {
		return append(dst, 0), nil
	}
	dst = reserve(dst, 9+len(m.Subscribers)*subscriberSize)
	dst = appendNumbers(append(dst, 1), uint64(len(m.Subscribers)))
	for i := range m.Subscribers {
		s := &m.Subscribers[i]
		dst = append(dst, s.ID[:]...)
		dst = appendNumbers(dst, s.Since, s.ReadBytes, s.WriteBytes)
	}
	return dst, nil
}
