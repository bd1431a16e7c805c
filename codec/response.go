package codec

import "fmt"

// Kind tells the messages of a server apart. It is not on the wire: it follows
// from the request that is answered, or from the first byte of an EVENT.
type Kind uint8

// The kinds of messages that a server sends.
const (
	KindStatus Kind = iota + 1 // a Status
	KindQuery                  // a QueryResponse
	KindGet                    // a GetResponse
	KindEvent                  // an Event
)

// known reports whether k is one of them.
func (k Kind) known() bool { return k >= KindStatus && k <= KindEvent }

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindStatus:
		return "status"
	case KindQuery:
		return "QUERY response"
	case KindGet:
		return "GET response"
	case KindEvent:
		return "EVENT"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

// Response is a frame that a server sends: a [Status], [QueryResponse],
// [GetResponse] or [Event].
type Response interface {
	Frame
	// Kind tells which.
	Kind() Kind
}

// DecodeResponse decodes the response of the given kind at the start of src and
// returns it and its length in bytes. The interface value may cost an allocation;
// [DecodeStatus] and its siblings cost none.
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
	default:
		return nil, 0, &DecodeError{Field: "response kind", Value: uint64(kind), Err: ErrMalformed}
	}
}

// response boxes a decoded message, and nothing where there is none.
func response[M Response](m M, n int, err error) (Response, int, error) {
	if err != nil {
		return nil, 0, err
	}
	return m, n, nil
}
