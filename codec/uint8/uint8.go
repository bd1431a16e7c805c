// Package uint8 is the codec for servers with a value size of 1 byte. It instantiates the
// generic types of package codec, so that a program names its value size once, in an
// import.
//
//	frame, err := uint8.Insert{Key: key, Quota: 1, TTL: ttl}.AppendBinary(nil)
package uint8

import (
	"io"
	"math"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Value is the type of quotas and of amounts of time.
type Value = uint8

const (
	// Size is the value size in bytes.
	Size = 1
	// Max is the largest value.
	Max Value = math.MaxUint8
)

// The messages and types that depend on the value size.
type (
	TTL           = codec.TTL[Value]
	Insert        = codec.Insert[Value]
	Update        = codec.Update[Value]
	Set           = codec.Set[Value]
	Event         = codec.Event[Value]
	Publish       = codec.Publish[Value]
	QueryResponse = codec.QueryResponse[Value]
	GetResponse   = codec.GetResponse[Value]
	ListResponse  = codec.ListResponse[Value]
	ListEntry     = codec.ListEntry[Value]
	ListDecoder   = codec.ListDecoder[Value]
	Encoder       = codec.Encoder[Value]
	Decoder       = codec.Decoder[Value]
)

// TTLOf is [codec.TTLOf] for this value size.
func TTLOf(d time.Duration) (TTL, error) { return codec.TTLOf[Value](d) }

// DecodeRequest is [codec.DecodeRequest] for this value size.
func DecodeRequest(src []byte) (codec.Request, int, error) {
	return codec.DecodeRequest[Value](src)
}

// DecodeResponse is [codec.DecodeResponse] for this value size.
func DecodeResponse(kind codec.Kind, src []byte) (codec.Response, int, error) {
	return codec.DecodeResponse[Value](kind, src)
}

// NewEncoder is [codec.NewEncoder] for this value size.
func NewEncoder(w io.Writer) *Encoder { return codec.NewEncoder[Value](w) }

// NewDecoder is [codec.NewDecoder] for this value size.
func NewDecoder(r io.Reader) *Decoder { return codec.NewDecoder[Value](r) }
