package mockserver

import (
	"testing"
	"time"

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

func TestCreationGetsSlowerWithTheRecordsThatWereMade(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 3 * time.Microsecond, 10_000: 19 * time.Microsecond, 20_000: 35 * time.Microsecond,
		30_500: 87500 * time.Nanosecond, oldAge: 140 * time.Microsecond, 1 << 40: 140 * time.Microsecond,
	} {
		require.Equal(t, want, creationTime(made), made)
	}
}
