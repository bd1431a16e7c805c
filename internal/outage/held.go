package outage

import (
	"context"

	"github.com/throttr-go/throttr/window"
)

// Holder is implemented by a backend that holds places in this process, such as that of package lease. A [Guard] has
// such a call decided by the places that are held, and only others pass its circuit: places are spent while the store
// is away.
type Holder interface {
	Held() Held
}

// Held is what a [Holder] holds.
type Held struct {
	// Of is the Holder itself. A type that embeds it may have a Take of its own, which must be called: such a type has
	// the method, too, but is not Of.
	Of window.Backend
	// Take makes a take, or a hit, of places that are held, or denies it by what is known, and asks no store. It
	// returns false, and does nothing, if the method of the backend must be called.
	Take func(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, ok bool)
}

// heldBy returns what a backend holds. Most hold nothing.
func heldBy(b window.Backend) Held {
	if holder, ok := b.(Holder); ok {
		if held := holder.Held(); held.Of == b {
			return held
		}
	}
	return Held{Take: holdsNothing}
}

func holdsNothing(context.Context, string, window.Limit, uint64) (w window.Window, ok bool) {
	return w, false
}
