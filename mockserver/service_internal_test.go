package mockserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCreationGetsSlowerWithTheRecordsThatWereMade(t *testing.T) {
	for made, want := range map[int]time.Duration{
		0: 3 * time.Microsecond, 10_000: 19 * time.Microsecond, 20_000: 35 * time.Microsecond,
		30_500: 87500 * time.Nanosecond, oldAge: 140 * time.Microsecond, 1 << 40: 140 * time.Microsecond,
	} {
		require.Equal(t, want, creationTime(made), made)
	}
}
