package codec

// Kind is the kind of a message that a server sends. It is not on the wire: it follows
// from the request, or from the first byte of an EVENT.
type Kind uint8

// The kinds of messages that a server sends.
const (
	KindStatus Kind = iota + 1 // a Status
	KindQuery                  // a QueryResponse
	KindGet                    // a GetResponse
	KindEvent                  // an Event

	KindStat        // a StatResponse
	KindList        // a ListResponse
	KindStats       // a StatsResponse
	KindInfo        // an InfoResponse
	KindConnections // a ConnectionsResponse
	KindConnection  // a ConnectionResponse
	KindChannels    // a ChannelsResponse
	KindChannel     // a ChannelResponse
	KindWhoAmI      // a WhoAmIResponse
)

// known reports whether k is one of the above.
func (k Kind) known() bool { return k >= KindStatus && k <= KindWhoAmI }

// Response is a frame that a server sends: a [Status], [QueryResponse],
// [GetResponse], [Event], [ListResponse], [InfoResponse], [StatResponse],
// [StatsResponse], [ConnectionsResponse], [ConnectionResponse],
// [ChannelsResponse], [ChannelResponse] or [WhoAmIResponse].
type Response interface {
	Frame
	// Kind returns the kind of the frame.
	Kind() Kind
}

// DecodeResponse decodes the response of a kind at the start of src and returns it and its
// length in bytes. The dynamic type is that of the message, such as [Status], and not a
// pointer. The interface value may cost an allocation, which [DecodeStatus] and the like
// avoid.
//
// Errors: [ErrShort]; [ErrMalformed], for an unknown kind too.
func DecodeResponse[T Value](kind Kind, src []byte) (res Response, n int, err error) {
	switch kind {
	case KindStatus:
		return response(DecodeStatus(src))
	case KindQuery:
		return response(DecodeQueryResponse[T](src))
	case KindGet:
		return response(DecodeGetResponse[T](src))
	case KindEvent:
		return response(DecodeEvent[T](src))
	case KindStat:
		return response(DecodeStatResponse(src))
	case KindList:
		return response(DecodeListResponse[T](src))
	case KindStats:
		return response(DecodeStatsResponse(src))
	case KindInfo:
		return response(DecodeInfoResponse(src))
	case KindConnections:
		return response(DecodeConnectionsResponse(src))
	case KindConnection:
		return response(DecodeConnectionResponse(src))
	case KindChannels:
		return response(DecodeChannelsResponse(src))
	case KindChannel:
		return response(DecodeChannelResponse(src))
	case KindWhoAmI:
		return response(DecodeWhoAmIResponse(src))
	default:
		return nil, 0, &DecodeError{Field: "response kind", Value: uint64(kind), Err: ErrMalformed}
	}
}

// response converts the results of a decoder. On an error the response is nil.
func response[M Response](m M, n int, err error) (Response, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return m, n, nil
}
