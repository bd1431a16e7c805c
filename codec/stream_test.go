package codec_test

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestDecoderDoesNotReadForAnUnknownKind(t *testing.T) {
	dec := codec.NewDecoder[uint16](bytes.NewReader([]byte("\x19\x00\x00\x00\x19\x00\x00\x00")))
	for range 2 {
		_, err := dec.Response(0)
		require.EqualError(t, err, "codec: malformed frame: response kind is 0x00 at offset 0")
	}
	res, err := dec.Response(codec.KindStatus)
	require.NoError(t, err)
	require.Equal(t, codec.KindEvent, res.Kind())
	_, err = dec.Response(0)
	require.ErrorIs(t, err, codec.ErrMalformed, "also with an EVENT in the buffer")
}

func TestDecoderGoesOnAfterAnErrorOfTheReader(t *testing.T) {
	frame := []byte("\x02\x03key")
	dec := codec.NewDecoder[uint8](iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(frame))))
	_, err := dec.Request()
	require.Equal(t, iotest.ErrTimeout, err)
	req, err := dec.Request()
	require.NoError(t, err)
	require.Equal(t, codec.Query{Key: []byte("key")}, req)
}

// writes counts the calls of Write and records their bytes.
type writes struct {
	calls int
	bytes.Buffer
}

func (w *writes) Write(b []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(b)
}

func TestEncoderWritesAllFramesInOneWriteOrNothing(t *testing.T) {
	var w writes
	enc := codec.NewEncoder[uint16](&w)
	good := codec.Query{Key: []byte("a")}
	require.ErrorIs(t, enc.Encode(good, codec.Query{Key: make([]byte, 256)}), codec.ErrTooLarge)
	insert := codec.Insert[uint8]{}
	for _, other := range []codec.Frame{insert, struct{ codec.Request }{insert}} {
		err := enc.Encode(good, other)
		require.ErrorIs(t, err, codec.ErrValueSize)
		require.EqualError(t, err, "codec: wrong value size: a frame of 1-byte values on a stream of 2-byte ones")
	}
	require.NoError(t, enc.Encode())
	require.Zero(t, w.calls, "without frames, and with an invalid one, there is no write")
	require.NoError(t, enc.Encode(good, codec.Purge{Key: []byte("a")}))
	require.Equal(t, 1, w.calls)
	require.Equal(t, "\x02\x01a\x04\x01a", w.String())
}

func TestEncoderReturnsTheWritersError(t *testing.T) {
	r, w := io.Pipe()
	require.NoError(t, r.CloseWithError(io.ErrNoProgress))
	require.Equal(t, io.ErrNoProgress, codec.NewEncoder[uint64](w).Encode(codec.Success))
}
