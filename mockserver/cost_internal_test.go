package mockserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestRequestsCostWhatTheyDoOnARealServer(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 3 * time.Microsecond, 10_000: 19 * time.Microsecond, 20_000: 35 * time.Microsecond,
		30_500: 87500 * time.Nanosecond, oldAge: 140 * time.Microsecond, 1 << 40: 140 * time.Microsecond,
	} {
		require.Equal(t, want, creationTime(made), made)
	}
	const records, unread = 100_000, 1000
	for op := codec.OpInsert; op <= codec.OpWhoAmI; op++ {
		want := 6*time.Microsecond + 1700*time.Nanosecond
		switch op {
		case codec.OpInsert, codec.OpSet:
			want += 140 * time.Microsecond
		case codec.OpList, codec.OpStats:
			want += 500 * time.Millisecond
		case codec.OpInfo:
			want += 35 * time.Millisecond
		}
		require.Equal(t, want, tcpCosts.of(op, 50_000, records, unread), op)
		require.Equal(t, time.Microsecond, costs{request: time.Microsecond}.of(op, 50_000, records, unread), op)
	}
}
