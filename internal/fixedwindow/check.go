package fixedwindow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/window"
)

// CheckAlgorithm returns an error unless servers can keep an algorithm exactly: fixed windows alone. For most of the
// others, there would have to be an UPDATE that depends on the value, or on a time; the rest would hang on the clocks
// of clients.
func CheckAlgorithm(a window.Algorithm) error {
	if a == window.FixedWindow {
		return nil
	}
	return fmt.Errorf("%w: Throttr servers can't keep the algorithm %q; they keep %q, and package memory and Redis keep all",
		window.ErrUnsupported, a, window.FixedWindow)
}

// Check returns what the backend promises about a limit, or the error that every call with it returns. It
// asks no server, and assumes that one is parked if the scale needs that. While the value size is not known, it knows
// what does not depend on that.
func (b *Backend) Check(l window.Limit) (window.Traits, error) {
	if err := limits.Check(&l); err != nil {
		return window.Traits{}, err
	}
	if err := CheckAlgorithm(l.Algorithm); err != nil {
		return window.Traits{}, err
	}
	if b.calls.Size() == nil {
		return window.Traits{Precision: l.Scale}, nil
	}
	precision, err := b.checkScale(l.Scale)
	if err != nil {
		return window.Traits{}, err
	}
	if err := b.checkNumber("Max", l.Max); err != nil {
		return window.Traits{}, err
	}
	return window.Traits{MaxCount: min(b.largest(), window.Unlimited), Precision: precision}, nil
}

// checkScale returns an error if windows of a scale can't be kept. Otherwise it returns how much later than the end of
// a window its ExpiresAt may be, but for the time that a call takes.
func (b *Backend) checkScale(scale time.Duration) (precision time.Duration, err error) {
	bands, ok := slot.BandsFor(scale, b.largest())
	if !ok {
		return 0, b.scaleError(scale)
	}
	return bands.Unit, nil
}

// size returns the value size of the servers; while it is not known, the largest.
func (b *Backend) size() conn.Size { return cmp.Or(b.calls.Size(), conn.SizeOf(8)) }

// largest returns the largest value of the servers, which is the highest count of a record.
func (b *Backend) largest() uint64 { return b.size().Largest() }

// awaited returns why a call for a key must fail while the value size is not known.
func (b *Backend) awaited(ctx context.Context, key string) error {
	if b.calls.Size() != nil {
		return nil
	}
	if err := b.group.check(ctx); err != nil {
		return err
	}
	if err := b.servers[b.pick(key)].Err(); err != nil {
		return fmt.Errorf("%w: %w", window.ErrUnavailable, err)
	}
	return nil // there is a connection by now
}

// checkNumber returns a RangeError if n does not fit a value.
func (b *Backend) checkNumber(field string, n uint64) error {
	if err := limits.CheckNumber(field, n); err != nil || n <= b.largest() {
		return err
	}
	return &window.RangeError{
		Field: field, Value: strconv.FormatUint(n, 10), Size: b.size().Bytes(),
		Bound: fmt.Sprintf("at most %d", b.largest()),
		Needs: api.SmallestSize(func(largest uint64) bool { return n <= largest }),
	}
}

// scaleError is the error for a scale whose windows can't be kept.
func (b *Backend) scaleError(scale time.Duration) error {
	return &window.RangeError{
		Field: "Scale", Value: scale.String(), Size: b.size().Bytes(),
		Bound: fmt.Sprintf("scales of whole units (1 ns to 1 h) whose double and 45 s more are at most %d units",
			b.largest()),
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
