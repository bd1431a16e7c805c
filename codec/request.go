package codec

// Request is a frame that a client sends: an [Insert], [Query], [Update], [Purge],
// [Set], [Get], [List], [Info], [Stat], [Stats], [Subscribe], [Unsubscribe],
// [Publish], [Connections], [Connection], [Channels], [Channel] or [WhoAmI].
type Request interface {
	Frame
	// Op returns the frame's first byte.
	Op() Op
	// ResponseKind returns the kind of the response, which a client must know to decode
	// it: responses carry no id, and come in the order of the requests.
	ResponseKind() Kind
}

// DecodeRequest decodes the request at the start of src and returns it and its length in
// bytes. The dynamic type is that of the message, such as [Insert], and not a pointer. The
// interface value costs an allocation, which [DecodeInsert] and the like avoid.
//
// Errors: [ErrShort]; [ErrMalformed]; [ErrUnknownOp] if the first byte is not the op code
// of a request, which includes an EVENT.
func DecodeRequest[T Value](src []byte) (req Request, n int, err error) {
	if len(src) == 0 {
		return nil, 0, ErrShort
	}
	switch Op(src[0]) {
	case OpInsert:
		return request(DecodeInsert[T](src))
	case OpQuery:
		return request(DecodeQuery(src))
	case OpUpdate:
		return request(DecodeUpdate[T](src))
	case OpPurge:
		return request(DecodePurge(src))
	case OpSet:
		return request(DecodeSet[T](src))
	case OpGet:
		return request(DecodeGet(src))
	case OpList:
		return request(DecodeList(src))
	case OpInfo:
		return request(DecodeInfo(src))
	case OpStat:
		return request(DecodeStat(src))
	case OpStats:
		return request(DecodeStats(src))
	case OpSubscribe:
		return request(DecodeSubscribe(src))
	case OpUnsubscribe:
		return request(DecodeUnsubscribe(src))
	case OpPublish:
		return request(DecodePublish[T](src))
	case OpConnections:
		return request(DecodeConnections(src))
	case OpConnection:
		return request(DecodeConnection(src))
	case OpChannels:
		return request(DecodeChannels(src))
	case OpChannel:
		return request(DecodeChannel(src))
	case OpWhoAmI:
		return request(DecodeWhoAmI(src))
	default:
		return nil, 0, &DecodeError{Field: "op", Value: uint64(src[0]), Err: ErrUnknownOp}
	}
}

// request converts the results of a decoder. On an error the request is nil.
func request[M Request](m M, n int, err error) (Request, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return m, n, nil
}
