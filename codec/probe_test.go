package codec_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestProbeHasItsBytes(t *testing.T) {
	got, err := codec.AppendProbe([]byte("kept"), []byte("\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"))
	require.NoError(t, err)
	insert := "\x01\x00\x06\x06\x17\x04\x15\x00\x00\x04\x11\x00\x00\x80\x00\x00\x00\x00\x09\x00\xa1\xb2\xc3\xd4\xe5\xf6\x07\x18"
	want := "kept" + insert +
		"\x04\x17" + insert[5:] + "\x04\x15" + insert[7:] + "\x04\x11" + insert[11:] + "\x04\x09" + insert[19:]
	require.Equal(t, want, string(got))

	dst := []byte("kept")
	got, err = codec.AppendProbe(dst, make([]byte, 241))
	require.EqualError(t, err, "codec: INSERT: probe tail is 241 bytes, at most 240 are allowed")
	require.ErrorIs(t, err, codec.ErrTooLarge)
	require.Equal(t, dst, got)
}

// For a server of any value size a probe must be five valid frames: an unknown op code
// would kill it.
func TestProbeIsValidForEveryValueSize(t *testing.T) {
	for _, tail := range [][]byte{nil, {0}, []byte("0123456789abcdef"), bytes.Repeat([]byte{0xff}, 240)} {
		probe, err := codec.AppendProbe(nil, tail)
		require.NoError(t, err)
		probeOn[uint8](t, probe)
		probeOn[uint16](t, probe)
		probeOn[uint32](t, probe)
		probeOn[uint64](t, probe)
	}
}

// probeOn executes a probe as a server of value size T.
func probeOn[T codec.Value](t *testing.T, probe []byte) {
	t.Helper()
	var responses []byte
	var created string
	dec := codec.NewDecoder[T](bytes.NewReader(probe))
	for i := range codec.ProbeResponses {
		req, err := dec.Request()
		require.NoError(t, err)
		if i == 0 {
			insert := req.(codec.Insert[T])
			ttl := insert.TTL.Duration()
			require.GreaterOrEqual(t, ttl, 6*time.Hour)
			require.Less(t, ttl, 200*365*24*time.Hour, "from now on, it fits the nanoseconds since 1970 of a server")
			created = string(insert.Key)
			responses = append(responses, 1)
			continue
		}
		if string(req.(codec.Purge).Key) == created {
			responses = append(responses, 1)
			created = "\x00none"
		} else {
			responses = append(responses, 0)
		}
	}
	_, err := dec.Request()
	require.Error(t, err)
	require.Equal(t, "\x00none", created, "the probe leaves nothing behind")
	size, n, err := codec.DecodeProbe(responses)
	require.NoError(t, err)
	require.Equal(t, codec.Size[T](), size)
	require.Equal(t, codec.ProbeResponses, n)
}
