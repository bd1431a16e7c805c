package fixedwindow

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/coalesce"
)

// entry is what a backend remembers of a key and scale.
type entry[T codec.Value] struct {
	key       string
	scale     time.Duration
	windows   keeper
	coalescer *coalesce.Coalescer // of hits on windows
}

// keeper keeps the windows of a key and scale on a server.
type keeper interface {
	coalesce.Window
	// get reads the open window. It returns the zero Result if there is none.
	get(ctx context.Context) (coalesce.Result, error)
	// set ends the open window and opens one with a count. Sent reports whether a failed set may
	// have been executed, in part or in whole.
	set(ctx context.Context, count uint64) (r coalesce.Result, sent bool, err error)
	// reset ends the open window and returns it.
	reset(ctx context.Context) (r coalesce.Result, sent bool, err error)
	// giveBack gives n back to the window with an ID. It returns false if that is not possible.
	giveBack(ctx context.Context, id int64, n uint64) (given bool, err error)
	// last returns what is known of the open window, and whether that is so recent that it can
	// refuse a take. It returns false if no window is known.
	last(now time.Time) (r coalesce.Result, recent, ok bool)
	// active reports whether a window is known that is not certainly over.
	active(now time.Time) bool
}
