package fuzz_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

func FuzzResponse8(f *testing.F) { fuzzResponse[uint8](f) }

func FuzzResponse16(f *testing.F) { fuzzResponse[uint16](f) }
func FuzzResponse32(f *testing.F) { fuzzResponse[uint32](f) }
func FuzzResponse64(f *testing.F) { fuzzResponse[uint64](f) }

// fuzzResponse decodes responses. The kinds are one byte each, and repeat.
func fuzzResponse[T codec.Value](f *testing.F) {
	var kinds []byte
	for _, res := range responses[T]() {
		src := encode(f, res)
		kinds = append(kinds, byte(res.Kind()))
		f.Add([]byte{byte(res.Kind())}, src)
		f.Add([]byte{byte(res.Kind())}, src[:len(src)-1])
	}
	f.Add(kinds, encode(f, responses[T]()...))
	f.Add([]byte{0}, []byte{1})
	for _, kind := range []codec.Kind{codec.KindList, codec.KindStats, codec.KindConnections, codec.KindChannels} {
		for _, counts := range []string{
			"\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00",
			"\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
			"\xff\xff\xff\xff\xff\xff\xff\xff",
		} {
			f.Add([]byte{byte(kind)}, append([]byte("\x01"+counts), make([]byte, 300)...))
		}
	}
	for _, tr := range transcripts[T](f) {
		f.Add(kindsOf[T](f, tr.sent), tr.received)
	}

	f.Fuzz(func(t *testing.T, kinds, src []byte) {
		if len(kinds) == 0 {
			kinds = []byte{byte(codec.KindStatus)}
		}
		kind := func(i int) codec.Kind { return codec.Kind(kinds[i%len(kinds)]) }
		got, n, err := frames(t, src, func(i int) decoder {
			return func(src []byte) (codec.Frame, int, error) {
				// An EVENT can come before every response.
				if known(kind(i)) && len(src) > 0 && codec.Op(src[0]) == codec.OpEvent {
					return frameOf(codec.DecodeResponse[T](codec.KindEvent, src))
				}
				return frameOf(codec.DecodeResponse[T](kind(i), src))
			}
		})
		for _, r := range arrivals(src) {
			dec := codec.NewDecoder[T](r)
			checkStream(t, func(i int) (codec.Frame, error) { return dec.Response(kind(i)) }, got, n, len(src), err)
		}
		checkFragmentDecoder[T](t, kind(0), src)
	})
}

// known reports whether a response can be of kind k.
func known(k codec.Kind) bool { return k >= codec.KindStatus && k <= codec.KindWhoAmI }

// kindsOf returns the kinds of the responses to the requests in src.
func kindsOf[T codec.Value](f *testing.F, src []byte) []byte {
	var kinds []byte
	for len(src) > 0 {
		req, n, err := codec.DecodeRequest[T](src)
		if err != nil {
			f.Fatal(err)
		}
		kinds = append(kinds, byte(req.ResponseKind()))
		src = src[n:]
	}
	return kinds
}
