package fixedwindow

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/window"
)

func TestRangeErrorsNameFieldBoundAndSize(t *testing.T) {
	of := func(size int) *Backend { return &Backend{calls: conn.NewCalls(conn.SizeOf(size))} }
	for want, err := range map[string]error{
		"throttr: Scale 1.5s is out of range: 1-byte values hold scales of whole units (1 ns to 1 h) " +
			"whose double and 45 s more are at most 255 units; 2-byte values (uint16) would do": of(1).scaleError(1500 * time.Millisecond),
		"throttr: Max 256 is out of range: 1-byte values hold at most 255; " +
			"2-byte values (uint16) would do": of(1).checkNumber("Max", 256),
		"throttr: count 4294967296 is out of range: 4-byte values hold at most 4294967295; " +
			"8-byte values (uint64) would do": of(4).checkNumber("count", 1<<32),
		"throttr: N 9223372036854775808 is out of range: it may be at most 2^63-1; was a negative number converted?": of(8).checkNumber("N", 1<<63),
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, window.ErrRange)
	}
	for _, size := range []int{1, 2, 4, 8} {
		most := min(api.MaxValue(size), window.Unlimited)
		require.NoError(t, of(size).checkNumber("Max", most))
		require.Error(t, of(size).checkNumber("Max", most+1))
	}
}
