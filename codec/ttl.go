package codec

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/internal/api"
)

// Unit is the unit of a TTL, one byte on the wire. A server stores and returns an unknown
// unit, and treats it as [Seconds].
type Unit byte

// The units of the protocol.
const (
	Nanoseconds  Unit = 0x01
	Microseconds Unit = 0x02
	Milliseconds Unit = 0x03
	Seconds      Unit = 0x04
	Minutes      Unit = 0x05
	Hours        Unit = 0x06
)

// Known reports whether u is one of the six units of the protocol.
func (u Unit) Known() bool { return u >= Nanoseconds && u <= Hours }

// Duration returns the duration of one unit. For an unknown unit that is a second, as on
// the server.
func (u Unit) Duration() time.Duration {
	switch u {
	case Nanoseconds:
		return time.Nanosecond
	case Microseconds:
		return time.Microsecond
	case Milliseconds:
		return time.Millisecond
	case Minutes:
		return time.Minute
	case Hours:
		return time.Hour
	default:
		return time.Second
	}
}

// String returns the unit's symbol: ns, µs, ms, s, m, h.
func (u Unit) String() string {
	return name(u, []string{Nanoseconds: "ns", "µs", "ms", "s", "m", "h"}, "unit")
}

// TTL is a time to live: an amount of a unit. On the wire it is the unit, one
// byte, and then the amount, N bytes.
//
// A record with a TTL of 0 expires at once. A server stores expiries as 64-bit nanoseconds
// since 1970. If a TTL overflows them, the record expires at once, too, or the server locks
// up (H13 in docs/internals/protocol.md). This package encodes such a TTL; package throttr refuses
// it.
type TTL[T Value] struct {
	Amount T
	Unit   Unit
}

// TTLOf returns d as a TTL in the finest unit in which it is a whole number that fits T. The
// remaining TTL in the response to a QUERY, which is rounded down to the unit, is then as
// exact as can be. TTLOf returns an error that matches [ErrTTLRange] if d is not positive,
// or if there is no such unit; the error names the value size that would do.
func TTLOf[T Value](d time.Duration) (TTL[T], error) {
	if d <= 0 {
		return TTL[T]{}, fmt.Errorf("%w: %v is not positive", ErrTTLRange, d)
	}
	if u, ok := finestUnit(d, uint64(^T(0))); ok {
		return TTL[T]{Amount: T(d / u.Duration()), Unit: u}, nil
	}
	need := api.SmallestSize(func(max uint64) bool {
		_, ok := finestUnit(d, max)
		return ok
	})
	return TTL[T]{}, fmt.Errorf("%w: %v is not exact in any unit with a value size of %d, one of %d would do",
		ErrTTLRange, d, Size[T](), need)
}

// finestUnit returns the finest unit in which d is a whole number up to max.
func finestUnit(d time.Duration, max uint64) (Unit, bool) {
	for u := Nanoseconds; u <= Hours; u++ {
		if d%u.Duration() == 0 && uint64(d/u.Duration()) <= max {
			return u, true
		}
	}
	return 0, false
}

// Duration returns t as a duration, or the longest duration, some 292 years, if t is longer
// than that.
func (t TTL[T]) Duration() time.Duration {
	hi, lo := bits.Mul64(uint64(t.Amount), uint64(t.Unit.Duration()))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(lo)
}

// String returns the amount and its unit, such as "90m".
func (t TTL[T]) String() string {
	return strconv.FormatUint(uint64(t.Amount), 10) + t.Unit.String()
}
