package slot

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/window"
)

func TestBandsOfAllScalesLeaveRoom(t *testing.T) {
	for _, size := range []int{1, 2, 4, 8} {
		for scale := window.MinScale; scale < 200*365*24*time.Hour; scale += scale/7 + 1 {
			for _, s := range []time.Duration{scale, scale.Truncate(time.Millisecond), scale.Truncate(time.Second), scale.Truncate(time.Hour)} {
				b, ok := BandsFor(s, api.MaxValue(size))
				if !ok {
					continue
				}
				require.Equal(t, s, b.duration(b.Top-b.Margin), "a window lasts for the scale, exactly")
				require.LessOrEqual(t, b.Top, api.MaxValue(size))
				require.LessOrEqual(t, b.Guard, s/2)
				require.Positive(t, b.Guard)
				require.GreaterOrEqual(t, b.duration(b.Doom), minDoom)
				if b.duration(b.Doom) < fullDoom {
					require.True(t, b.Top == b.Largest || b.duration(b.Top+1) > maxTTL, "%v, %d bytes: more would fit", s, size)
				}
				require.GreaterOrEqual(t, b.duration(b.Doom-b.Watch), 5*b.Guard, "time for a janitor")
				require.GreaterOrEqual(t, b.duration(b.Watch), 5*b.Guard, "time for watchers")
				require.GreaterOrEqual(t, b.duration(b.Margin-b.Doom), s+idleTime, "time between two windows")
				require.Less(t, b.duration(b.Top), maxTTL+1)
				require.Positive(t, b.duration(b.Top))
			}
		}
	}
	for _, scale := range []time.Duration{0, -time.Second, 150 * 365 * 24 * time.Hour, math.MaxInt64} {
		_, ok := BandsFor(scale, math.MaxUint64)
		require.False(t, ok, "%v", scale)
	}
}

// String returns "A" or "B".
func (id ID) String() string { return string('A' + rune(id)) }

// String returns the state's name.
func (s State) String() string { return [...]string{"absent", "live", "free", "over", "doomed"}[s] }

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"look", "read", "done", "join", "open", "create", "tidy", "spoil", "retire",
		"refill", "claim", "remove", "end", "return"}[k]
}
