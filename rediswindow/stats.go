package rediswindow

import (
	"errors"
	"sync/atomic"

	"github.com/throttr-go/throttr/window"
)

// stats counts calls.
type stats struct {
	calls, errors atomic.Uint64
	away          atomic.Pointer[error] // of the last call; nil while the store responds
}

// count counts a call.
func (s *stats) count(err error) {
	s.calls.Add(1)
	switch {
	case err == nil:
		if s.away.Load() != nil {
			s.away.Store(nil)
		}
		return
	case errors.Is(err, window.ErrScale), errors.Is(err, window.ErrRange), errors.Is(err, window.ErrUnsupported), errors.Is(err, window.ErrClosed):
		return // no failure of the store
	case errors.Is(err, window.ErrUnavailable):
		away := err // a copy, so that err need not be on the heap
		s.away.Store(&away)
	}
	s.errors.Add(1)
}

func (s *stats) read(name string) window.StoreStats {
	r := window.StoreStats{Name: name, Calls: s.calls.Load(), Errors: s.errors.Load()}
	if err := s.away.Load(); err != nil {
		r.Err = *err
	}
	return r
}
