package breaker

import (
	"github.com/throttr-go/throttr/internal/inside"
	"github.com/throttr-go/throttr/window"
)

// Parts is the view of a backend that says how many parts its store has, each with a circuit of its own, and which is
// that of a key. A store that can't be away has none.
type Parts struct {
	N  int
	Of func(key string) int
}

// PartsOf returns the parts of the store of a backend. Without the view, it is one part.
func PartsOf(b window.Backend) Parts {
	if p, ok := inside.Of[Parts](b); ok {
		return p
	}
	return Parts{1, func(string) int { return 0 }}
}
