package fixedwindow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// checkAlgorithm returns an error unless servers can keep an algorithm exactly: fixed windows alone. For most of the
// others, there would have to be an UPDATE that depends on the value, or on a time; the rest would hang on the clocks
// of clients.
func checkAlgorithm(a window.Algorithm) error {
	if a == window.FixedWindow {
		return nil
	}
	return fmt.Errorf("%w: Throttr servers can't keep the algorithm %q; they keep %q, and memory, Redis and PostgreSQL keep all",
		window.ErrUnsupported, a, window.FixedWindow)
}

// Check returns what the backend promises about a limit, or the error that every call with it returns. It
// asks no server, and assumes that one is parked if the scale needs that. While the value size is not known, it knows
// what does not depend on that.
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	if err := check(&l, 0); err != nil {
		return window.Traits{}, err
	}
	size := b.Calls.Size()
	if size == nil {
		return window.Traits{Precision: l.Scale}, nil
	}
	bands, err := fit(size.Largest(), &l, 0)
	if err != nil {
		return window.Traits{}, err
	}
	return window.Traits{MaxCount: min(bands.Largest, window.Unlimited), Precision: bands.Unit}, nil
}

// check returns the error that a limit, or the n of a call, has on servers of any value size.
func check(l *window.Limit, n uint64) error {
	return cmp.Or(limits.Check(l), checkAlgorithm(l.Algorithm), limits.CheckNumber("N", n))
}

// largest returns the largest value of the servers, which is the highest count of a record, or why a call for a key
// must fail while it is not known.
func (b *Backend) largest(ctx context.Context, key string) (uint64, error) {
	if size := b.Calls.Size(); size != nil {
		return size.Largest(), nil
	}
	if err := b.group.check(ctx); err != nil {
		return 0, err
	}
	err := b.Servers[b.Pick(key)].Err()
	if size := b.Calls.Size(); size != nil { // there is a connection by now
		return size.Largest(), nil
	}
	return 0, fmt.Errorf("%w: %w", window.ErrUnavailable, err)
}

// fit returns the bands of a limit, or a RangeError if windows of the limit, or the n of a call, do not fit values up
// to the largest.
func fit(largest uint64, l *window.Limit, n uint64) (slot.Bands, error) {
	bands, ok := slot.BandsFor(l.Scale, largest)
	if !ok {
		return bands, scaleError(largest, l.Scale)
	}
	return bands, cmp.Or(checkNumber(largest, "Max", l.Max), checkNumber(largest, "N", n))
}

// checkNumber returns a RangeError if n does not fit a value.
func checkNumber(largest uint64, field string, n uint64) error {
	if n <= largest {
		return nil
	}
	return &window.RangeError{
		Field: field, Value: strconv.FormatUint(n, 10), Size: bits.Len64(largest) / 8,
		Bound: fmt.Sprintf("at most %d", largest),
		Needs: api.SmallestSize(func(largest uint64) bool { return n <= largest }),
	}
}

// scaleError is the error for a scale whose windows can't be kept.
func scaleError(largest uint64, scale time.Duration) error {
	return &window.RangeError{
		Field: "Scale", Value: scale.String(), Size: bits.Len64(largest) / 8,
		Bound: fmt.Sprintf("scales of whole units (1 ns to 1 h) whose double and 45 s more are at most %d units",
			largest),
		Needs: api.SmallestSize(func(largest uint64) bool { _, ok := slot.BandsFor(scale, largest); return ok }),
	}
}

// ErrTooLate says that a window could not be opened, ended or counted in while that was possible.
var ErrTooLate = errors.New("throttr: too late")

// overError is the error of hits that were not counted, or may not have been, because the window
// was over by the time that they could be.
func overError(scale time.Duration) error {
	return fmt.Errorf("%w: a window of %v was over by then", ErrTooLate, scale)
}
