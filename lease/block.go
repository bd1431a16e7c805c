package lease

import (
	"sync/atomic"
	"time"

	"github.com/throttr-go/throttr/window"
)

// kind is what a block says about hits.
type kind uint8

const (
	places  kind = iota // hits take places
	refusal             // the window has no more places: hits are refused
	through             // the window is about to end: hits go to the backend
)

// retired is added to what is spent of a block that is retired: no place is left.
const retired = 1 << 62

// block is places of a window that were taken together: those from first+1 to first+size. Times are
// those of the monotonic clock, since the backend was made.
type block struct {
	// spent is how many places were taken of the block, and more once there are none left. Of a
	// block without places it says whether there were hits. It has a cache line of its own, as all
	// processors write it.
	spent atomic.Uint64
	_     [56]byte

	kind        kind
	size, first uint64
	mark        uint64        // the place whose taking starts the take of the next block
	until       time.Duration // until when it is used; its window is not over before
	over        time.Duration // when the window is over at the latest
	id          int64         // of the window
	expires     time.Time     // the window, by the backend's clock
	count       uint64        // of the window, when the block was taken or refused
}

// take takes n places. It returns the last of them, counted from 1, or false if there are not
// enough. The caller then reads the clock.
func (b *block) take(n uint64) (last uint64, ok bool) {
	if n == 1 {
		last = b.spent.Add(1)
		return last, last <= b.size
	}
	for {
		spent := b.spent.Load()
		if spent > b.size || n > b.size-spent {
			return 0, false
		}
		if b.spent.CompareAndSwap(spent, spent+n) {
			return spent + n, true
		}
	}
}

// retire takes all places that are left and returns how many they are. Nobody gets one after that.
func (b *block) retire() (left uint64) {
	return b.size - min(b.spent.Swap(retired), b.size)
}

// left returns how many places are left.
func (b *block) left() uint64 { return b.size - min(b.spent.Load(), b.size) }

// note notes a hit on a block without places.
func (b *block) note() {
	if b.spent.Load() == 0 { // a write each time would be slow
		b.spent.Store(1)
	}
}

// usable reports whether a hit could get something from the block.
func (b *block) usable(now time.Duration) bool {
	return now < b.until && (b.kind != places || b.left() > 0)
}

// answer is what a hit or take is told.
type answer struct {
	count   uint64 // its last place; if it is refused, the count of the window
	left    time.Duration
	retry   time.Duration // if it is refused
	expires time.Time
	id      int64 // of the window
	asked   bool  // the backend has said so, and not a block
	refused bool
}

// answer sets a to the answer to a hit at a time.
func (b *block) answer(a *answer, count uint64, now time.Duration) {
	a.count, a.left, a.expires, a.id = count, max(b.over-now, 1), b.expires, b.id
}

func answerOf(w window.Window) answer {
	return answer{
		count: w.Count, left: w.Left, retry: w.RetryAfter, expires: w.ExpiresAt, id: w.ID, asked: true, refused: w.Refused,
	}
}

func (a *answer) window() window.Window {
	return window.Window{Count: a.count, ExpiresAt: a.expires, Left: a.left, RetryAfter: a.retry, ID: a.id, Refused: a.refused}
}
