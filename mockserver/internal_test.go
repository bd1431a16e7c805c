package mockserver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit/race"
)

// The time of many records is not that of their square, whatever the order in which they expire.
func TestManyRecordsTakeLittleTime(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector is slow")
	}
	hazards := [hazardCount]bool{Grace: true}
	st := &store{hazards: &hazards, records: map[string]*record{}, collector: collector{hazards: &hazards}}
	for start, i := time.Now(), 0; i < 100_000; i++ {
		ok, err := st.insert(fmt.Append(nil, i), 1, ttl{Amount: 1 + rand.Uint64N(1e9), Unit: codec.Microseconds})
		require.True(t, ok)
		require.NoError(t, err)
		require.Less(t, time.Since(start), 10*time.Second, "%d records are made", i)
	}
	start := time.Now()
	st.catchUp(uint64(time.Hour))
	require.Empty(t, st.records)
	require.Less(t, time.Since(start), 10*time.Second)
}

// While some responses are always outstanding, as those that are delayed can be, the others need no more memory.
func TestABufferThatIsAlwaysInUseIsBounded(t *testing.T) {
	s, c := new(Server), new(conn)
	for i := range 10_000 {
		s.queue(c, response{frame: []byte{byte(i), byte(i >> 8)}}, nil)
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

// TableBefore reports whether the key a stands before b in the server's table.
func TableBefore(a, b string) bool {
	return tableOrder(a) < tableOrder(b)
}
