package codec

import "iter"

// Channels lists all channels that have subscriptions. A client sends it; the response is
// a [ChannelsResponse].
//
//	16
type Channels struct{}

// Op returns [OpChannels].
func (Channels) Op() Op { return OpChannels }

// ResponseKind returns [KindChannels].
func (Channels) ResponseKind() Kind { return KindChannels }

// AppendBinary appends the frame to dst. It never fails.
func (Channels) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpChannels)), nil
}

// ChannelsResponse is the response to a [Channels]. A server sends it.
//
//	01 · fragments u64 · per fragment: index u64, from 1 · n u64 · n × entry · n names
//	entry: name length 1 · read bytes u64 · write bytes u64 · connections u64
type ChannelsResponse struct {
	Fragments [][]ChannelsEntry // in the order of the wire; nil if there are none
}

// Kind returns [KindChannels].
func (ChannelsResponse) Kind() Kind { return KindChannels }

// All yields the entries of all fragments.
func (m ChannelsResponse) All() iter.Seq[ChannelsEntry] { return allOf(m.Fragments) }

// DecodeChannelsResponse decodes the response to a CHANNELS at the start of src and
// returns it and its length in bytes. A [ChannelsDecoder] decodes a
// response that arrives in pieces. Errors: [ErrShort], [ErrMalformed].
func DecodeChannelsResponse(src []byte) (m ChannelsResponse, n int, err error) {
	m.Fragments, n, err = decodeFragments[ChannelsEntry](src)
	return m, n, err
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for
// a name, dst is returned as it was.
func (m ChannelsResponse) AppendBinary(dst []byte) ([]byte, error) {
	return appendFragments(dst, m.Fragments)
}

// ChannelsDecoder decodes the response to a CHANNELS fragment by fragment.
type ChannelsDecoder = FragmentDecoder[ChannelsEntry]

// ChannelsEntry is a channel in a [ChannelsResponse]. A server subscribes every connection
// to "*" and to the channel of its own id (see [ConnID]).
type ChannelsEntry struct {
	Name        []byte // at most MaxKey bytes; may be empty; aliases the input when decoded
	ReadBytes   uint64 // the sum over its subscriptions (see Subscriber)
	WriteBytes  uint64 // the sum over its subscriptions
	Connections uint64 // how many subscriptions it has; a connection can have several
}

func (ChannelsEntry) size() int { return 1 + 3*8 }

func (e ChannelsEntry) name() []byte { return e.Name }

func (ChannelsEntry) nameLength(b []byte) int { return int(b[0]) }

func (ChannelsEntry) decode(b, name []byte) (ChannelsEntry, error) {
	e := ChannelsEntry{Name: name}
	getNumbers(b[1:], &e.ReadBytes, &e.WriteBytes, &e.Connections)
	return e, nil
}

func (e ChannelsEntry) append(dst []byte) ([]byte, error) {
	if len(e.Name) > MaxKey {
		return dst, keyTooLong(OpChannels, e.Name)
	}
	return appendNumbers(append(dst, byte(len(e.Name))), e.ReadBytes, e.WriteBytes, e.Connections), nil
}
