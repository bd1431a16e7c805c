package codec

// Info reads the statistics of the server. A client sends it; the response is an
// [InfoResponse].
//
//	08
type Info struct{}

// Op returns [OpInfo].
func (Info) Op() Op { return OpInfo }

// ResponseKind returns [KindInfo].
func (Info) ResponseKind() Kind { return KindInfo }

// AppendBinary appends the frame to dst. It never fails.
func (Info) AppendBinary(dst []byte) ([]byte, error) {
	return append(dst, byte(OpInfo)), nil
}

// InfoResponse is the response to an [Info]. A server sends it.
//
//	01 · 52 × u64, in the order of the fields · version 16 (text, NUL padded)
type InfoResponse struct {
	Timestamp     uint64 // the server's clock, in s since 1970
	Requests      InfoRequests
	ReadBytes     Count  // received from all connections
	WriteBytes    Count  // sent to all connections
	Keys          uint64 // records of both kinds
	Counters      uint64 // records that are counters
	Buffers       uint64 // records that are buffers
	CounterBytes  uint64 // used by the values of all counters
	BufferBytes   uint64 // used by the values of all buffers
	Subscriptions uint64 // of all connections, those to "*" and to their own ids included
	Channels      uint64 // real servers count their connections here, not their channels
	RunningSince  uint64 // when the server started, in ns since 1970
	Connections   uint64 // open connections
	Version       string // of the server, such as "5.0.11"; at most 16 bytes
}

// InfoRequests is how many requests of each kind a server has executed. The fields are in
// the order of the wire.
type InfoRequests struct {
	All, Insert, Query, Update, Purge, Get, Set, List, Info, Stats, Stat, Subscribe, Unsubscribe,
	Publish, Channel, Channels, WhoAmI, Connection, Connections Count
}

// Count is how many events there were since the server started, and in the last whole
// minute. A server updates the second number once a minute.
type Count struct {
	Total     uint64
	PerMinute uint64
}

const (
	infoSize   = 1 + 52*8 + maxVersion // bytes
	maxVersion = 16                    // bytes
)

// counts returns the pairs of numbers, in the order of the wire.
func (m *InfoResponse) counts() [21]*Count {
	r := &m.Requests
	return [...]*Count{
		&r.All, &r.Insert, &r.Query, &r.Update, &r.Purge, &r.Get, &r.Set, &r.List, &r.Info, &r.Stats, &r.Stat,
		&r.Subscribe, &r.Unsubscribe, &r.Publish, &r.Channel, &r.Channels, &r.WhoAmI, &r.Connection, &r.Connections,
		&m.ReadBytes, &m.WriteBytes,
	}
}

// Kind returns [KindInfo].
func (InfoResponse) Kind() Kind { return KindInfo }

// DecodeInfoResponse decodes the response to an INFO at the start of src and returns
// it and its length, 433. Errors: [ErrShort], [ErrMalformed].
func DecodeInfoResponse(src []byte) (m InfoResponse, n int, err error) {
	if err := expectSuccess(src); err != nil {
		return m, 0, err
	}
	if len(src) < infoSize {
		return m, 0, ErrShort
	}
	b := src[1:]
	getNumbers(b, &m.Timestamp)
	b = b[8:]
	for _, c := range m.counts() {
		getNumbers(b, &c.Total, &c.PerMinute)
		b = b[16:]
	}
	getNumbers(b, &m.Keys, &m.Counters, &m.Buffers, &m.CounterBytes, &m.BufferBytes,
		&m.Subscriptions, &m.Channels, &m.RunningSince, &m.Connections)
	m.Version = text(src[infoSize-maxVersion : infoSize])
	return m, infoSize, nil
}

// AppendBinary appends the frame to dst. On an error, a [*SizeError] for the
// version, dst is returned as it was.
func (m InfoResponse) AppendBinary(dst []byte) ([]byte, error) {
	if len(m.Version) > maxVersion {
		return dst, &SizeError{Op: OpInfo, Field: "version", Size: len(m.Version), Max: maxVersion}
	}
	dst = reserve(dst, infoSize)
	dst = appendNumbers(append(dst, 1), m.Timestamp)
	for _, c := range m.counts() {
		dst = appendNumbers(dst, c.Total, c.PerMinute)
	}
	dst = appendNumbers(dst, m.Keys, m.Counters, m.Buffers, m.CounterBytes, m.BufferBytes,
		m.Subscriptions, m.Channels, m.RunningSince, m.Connections)
	return appendText(dst, m.Version, maxVersion), nil
}
