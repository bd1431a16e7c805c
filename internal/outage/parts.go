package outage

import (
	"context"

	"github.com/throttr-go/throttr/window"
)

// Parts is implemented by backends of this module whose store has parts that can be away each for itself, such as
// servers or the nodes of a cluster, and by those that pass calls on to another backend. A [Guard] then has a circuit
// for each part, so that a part that is away does not stop the calls for the keys of the others. A backend without it
// is one part. So is one that wraps such a backend, if it embeds the interface window.Backend; a type that embeds the
// backend itself has its parts.
type Parts interface {
	// Part returns the name of the part that keeps a key now, such as the address of its server, and "" if there is
	// only one part or it is not known. It may change: then the circuit of another part counts. Part is called before
	// every call, by any number of goroutines: it asks nobody, waits for nothing, and should not allocate. Circuits
	// of a name stay for ever, so names are those of servers and not of connections.
	Part(key string) string
}

// PartOf returns the part of the store of a backend that keeps a key, "" if it has no parts.
func PartOf(b window.Backend, key string) string {
	if parts, ok := b.(Parts); ok {
		return parts.Part(key)
	}
	return ""
}

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
	return Held{Take: func(context.Context, string, window.Limit, uint64) (w window.Window, ok bool) { return w, false }}
}
