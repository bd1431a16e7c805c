package fuzz_test

import (
	"testing"

	"github.com/throttr-go/throttr/codec"
)

func FuzzRequest8(f *testing.F)  { fuzzRequest[uint8](f) }
func FuzzRequest16(f *testing.F) { fuzzRequest[uint16](f) }
func FuzzRequest32(f *testing.F) { fuzzRequest[uint32](f) }
func FuzzRequest64(f *testing.F) { fuzzRequest[uint64](f) }

func fuzzRequest[T codec.Value](f *testing.F) {
	for _, tr := range transcripts[T](f) {
		f.Add(tr.sent)
	}
	probe, err := codec.AppendProbe(nil, []byte("tail"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(probe)

	decode := decoder(func(src []byte) (codec.Frame, int, error) {
		return frameOf(codec.DecodeRequest[T](src))
	})
	f.Fuzz(func(t *testing.T, src []byte) {
		got, n, err := frames(t, src, func(int) decoder { return decode })
		for _, r := range arrivals(src) {
			dec := codec.NewDecoder[T](r)
			checkStream(t, func(int) (codec.Frame, error) { return dec.Request() }, got, n, len(src), err)
		}
	})
}
