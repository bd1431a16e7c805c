package lease

import (
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

// block is places of a window that were taken together: those from first+1 to first+size. The mutex of the entry guards
// spent, begun and dry; the other fields do not change once an entry has the block. Times are those of the monotonic
// clock, since the backend was made. The zero block has no places.
type block struct {
	kind        kind
	size, first uint64
	spent       uint64        // how many places were taken of it
	until       time.Duration // until when it is used; its window is certainly open until then
	over        time.Duration // when its window is over at the latest
	id          int64         // of the window
	expires     time.Time     // when the window ends, by the backend's clock
	count       uint64        // of the window, when the block was taken or refused
	begun       time.Duration // when it became the current block
	dry         time.Duration // when it was first found to have too few places; 0: not yet
}

// left returns how many places are left.
func (b *block) left() uint64 { return b.size - b.spent }

// has reports whether n places are left.
func (b *block) has(n uint64) bool { return b.kind == places && n <= b.left() }

// take takes n of the places that are left. It returns the last one, counted from the start of the window, and
// whether the next block should be taken now: a quarter is left.
func (b *block) take(n uint64) (place uint64, nearEnd bool) {
	before := b.left()
	b.spent += n
	return b.first + b.spent, before > b.size/4 && b.left() <= b.size/4
}

// retire takes all places that are left, and returns how many they are.
func (b *block) retire() uint64 {
	left := b.left()
	b.spent = b.size
	return left
}

// usable reports whether a hit could get something from the block.
func (b *block) usable(now time.Duration) bool {
	return now < b.until && (b.kind != places || b.left() > 0)
}

// window returns the answer to a hit at a time, with a count.
func (b *block) window(count uint64, now time.Duration) window.Window {
	return window.Window{Count: count, ExpiresAt: b.expires, Left: max(b.over-now, 1), ID: b.id}
}
