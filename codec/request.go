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
// interface value costs an allocation, which [DecodeInsert], [DecodeQuery], [DecodeUpdate] and [DecodePurge] avoid.
//
// Errors: [ErrShort]; [ErrMalformed]; [ErrUnknownOp] if the first byte is not the op code
// of a request, which includes an EVENT.
func DecodeRequest[T Value](src []byte) (req Request, n int, err error) {
	if len(src) == 0 {
		return nil, 0, ErrShort
	}
	switch op := Op(src[0]); op {
	case OpInsert:
		return request(DecodeInsert[T](src))
	case OpUpdate:
		return request(DecodeUpdate[T](src))
	case OpSet:
		return request(decodeSet[T](src))
	case OpPublish:
		return request(decodePublish[T](src))
	case OpConnection:
		return request(decodeConnection(src))
	case OpQuery, OpPurge, OpGet, OpStat, OpSubscribe, OpUnsubscribe, OpChannel:
		key, n, err := decodeKeyFrame(src, op)
		return request(keyRequest(op, key), n, err)
	}
	if req = bareRequest(Op(src[0])); req == nil {
		return nil, 0, &DecodeError{Field: "op", Value: uint64(src[0]), Err: ErrUnknownOp}
	}
	return req, 1, nil
}

// request converts the results of a decoder. On an error the request is nil.
func request[M Request](m M, n int, err error) (Request, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return m, n, nil
}

// keyRequest returns a request that consists of an op and a key or channel.
func keyRequest(op Op, key []byte) Request {
	switch op {
	case OpQuery:
		return Query{key}
	case OpPurge:
		return Purge{key}
	case OpGet:
		return Get{key}
	case OpStat:
		return Stat{key}
	case OpSubscribe:
		return Subscribe{key}
	case OpUnsubscribe:
		return Unsubscribe{key}
	default:
		return Channel{key}
	}
}

// bareRequest returns a request that consists of its op; nil for any other op.
func bareRequest(op Op) Request {
	switch op {
	case OpList:
		return List{}
	case OpInfo:
		return Info{}
	case OpStats:
		return Stats{}
	case OpConnections:
		return Connections{}
	case OpChannels:
		return Channels{}
	case OpWhoAmI:
		return WhoAmI{}
	}
	return nil
}
