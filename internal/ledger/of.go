package ledger

import "github.com/throttr-go/throttr/window"

// of return the ledger of a backend of their type, or nil. They are added by init functions only.
var of []func(window.Backend) *Ledger

// Add adds the ledgers of a type of backends. Call it in init. It is for the exact type of a backend only: a
// type that embeds a backend may have an Exchange of its own, which must be called.
func Add[B window.Backend](f func(B) *Ledger) {
	of = append(of, func(b window.Backend) *Ledger {
		if b, ok := b.(B); ok {
			return f(b)
		}
		return nil
	})
}

// Of returns the ledger of a backend in the memory of this process, or nil.
func Of(b window.Backend) *Ledger {
	for _, f := range of {
		if l := f(b); l != nil {
			return l
		}
	}
	return nil
}
