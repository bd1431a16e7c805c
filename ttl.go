package throttr

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// maxTTL is the longest TTL that the client sends, some 292 years: what a server
	// adds to its clock must fit 64-bit nanoseconds, which are unsigned (H13).
	maxTTL = time.Duration(1<<63 - 1)
	// maxTTLHours is maxTTL in hours: an amount up to it is safe in any unit.
	maxTTLHours = uint64(maxTTL / time.Hour)
)

// checkTTL refuses what makes a server lose a record or lock up (H13).
func checkTTL[T codec.Value](ttl codec.TTL[T]) error {
	switch {
	case !ttl.Unit.Known():
		return fmt.Errorf("%w: unit 0x%02x is unknown", ErrTTL, byte(ttl.Unit))
	case ttl.Amount == 0:
		return fmt.Errorf("%w: 0 is dead at once", ErrTTL)
	case uint64(ttl.Amount) > uint64(maxTTL/ttl.Unit.Duration()):
		return fmt.Errorf("%w: %v is over 292 years", ErrTTL, ttl)
	}
	return nil
}

// checkChange refuses what a server does not know: the server would ignore it and could report
// success.
func checkChange(attribute codec.Attribute, change codec.Change) error {
	if attribute > codec.TimeToLive || change > codec.Decrease {
		return fmt.Errorf("%w: UPDATE of %v by %v", ErrUpdate, attribute, change)
	}
	return nil
}

// checkTTLChange reports whether the TTL of key can be changed by value. It returns false if
// there is no such key.
func (c *Client[T]) checkTTLChange(ctx context.Context, key string, change codec.Change, value T) (bool, error) {
	if change == codec.Patch && uint64(value) <= maxTTLHours {
		return true, checkTTL(codec.TTL[T]{Amount: value, Unit: codec.Hours})
	}
	now, ok, err := c.Query(ctx, key)
	if !ok || err != nil {
		return false, err
	}
	by, left := codec.TTL[T]{Amount: value, Unit: now.TTL.Unit}.Duration(), now.TTL.Duration()
	why := ""
	switch {
	case by == maxTTL, change == codec.Increase && by > maxTTL-left-now.TTL.Unit.Duration():
		why = "leads beyond 292 years"
	case change == codec.Increase && value >= ^T(0)-now.TTL.Amount:
		why = "leads beyond what a QUERY can return"
	case change == codec.Decrease && by > left:
		why = "ends it: purge it instead"
	default:
		return true, nil
	}
	return false, fmt.Errorf("%w: %v by %d%v of a record that has %v left %s", ErrTTL, change, value, now.TTL.Unit, now.TTL, why)
}
