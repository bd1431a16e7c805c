package fixedwindow

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/sweep"
)

// Rule knows the records of windows, of all keys and scales, by their names.
type Rule[T codec.Value] struct{ layouts layouts }

var _ sweep.Rule = (*Rule[uint16])(nil)

// Inspect implements [sweep.Rule].
func (r *Rule[T]) Inspect(name []byte, now time.Time) (removable, ours bool) {
	_, ok := ParseName(name)
	return false, ok
}

// Decide implements [sweep.Rule].
func (r *Rule[T]) Decide(name []byte, o sweep.Observation, now time.Time) sweep.Decision {
	return sweep.Decision{}
}
