package mockserver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

// While some responses are always outstanding, as those that are delayed can be, the others need no more memory.
func TestABufferThatIsAlwaysInUseIsBounded(t *testing.T) {
	s, c := new(Server), new(conn)
	for i := range 10_000 {
		s.respond(c, response{frame: []byte{byte(i), byte(i >> 8)}}, nil)
		if first := i - len(c.out) + 1; len(c.out) > 2 {
			require.Equal(t, []byte{byte(first), byte(first >> 8)}, c.out[0].frame)
			c.out = c.out[1:]
		}
	}
	require.LessOrEqual(t, cap(c.buf), codec.MaxFrame)
}
