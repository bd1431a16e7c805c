package fixedwindow

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/slot"
)

// closing closes a backend and returns how long that takes.
func closing(b *Backend) time.Duration {
	began := time.Now()
	b.Close()
	return time.Since(began)
}

// While Close waits for windows, other records become doomed, or are being removed.
func TestCloseRemovesWhatTheJanitorWasAboutToRemove(t *testing.T) {
	bands, _ := slot.BandsFor(time.Second, math.MaxUint16)
	doomed := time.Duration(bands.Top-bands.Doom) * bands.Unit
	for before := -2 * time.Second; before <= 3*time.Second; before += 300 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			srv := inMemory(t)
			b := open(options(t, srv))
			for i := range 300 { // more than one chunk
				hits(t, b, 1, fmt.Sprint(i), fixed(time.Second, 1))
			}
			time.Sleep(doomed + before)
			hits(t, b, 1, "short", fixed(time.Second, 1))
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, closing(b), closeWait+closeTimeout)
			require.Zero(t, len(windowKeys(srv)), "closed %v after they were doomed", before)
			require.Zero(t, srv.Expired())
		})
	}
}

// The client that has opened the last window of a key goes on, and opens the next one without an INSERT.
func TestCloseLeavesRecordsToTheClientOfTheLastWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale = 10 * time.Second
		srv := inMemory(t)
		b, other := open(options(t, srv)), client(t, srv)
		for _, opens := range []*Backend{b, other} {
			hits(t, opens, 1, "k", fixed(scale, 1))
			time.Sleep(scale + time.Millisecond)
		}
		b.Close()
		require.Len(t, windowKeys(srv), 2)
		other.Close()
		require.Empty(t, windowKeys(srv))
	})
}

func TestCloseIsBoundedIfTheServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := inMemory(t)
		b := open(options(t, srv))
		hits(t, b, 1, "over", fixed(time.Second, 1))
		time.Sleep(1100 * time.Millisecond)
		srv.Refuse(true)
		srv.Disconnect()
		require.LessOrEqual(t, closing(b), 3*time.Second)
	})
}
