package memory

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

var _ window.Checker = (*Backend)(nil)

// Check implements [window.Checker]. The backend keeps every limit whose scale is at least 1 ms.
// Sliding windows and sliding logs have a largest limit: see [WithAlgorithm].
func (b *Backend) Check(scale time.Duration, limit uint64) error {
	if scale < window.MinScale {
		return scaleError(scale)
	}
	return b.checkLimit(limit)
}

// setBounds sets the largest limit of the algorithm, and the most times in logs.
func (b *Backend) setBounds() {
	switch {
	case b.algorithm == window.Sliding:
		b.maxLimit = maxSliding
	case b.algorithm != window.SlidingLog:
		b.maxLimit = math.MaxUint64
	case b.maxLimit == 0:
		b.maxLimit = DefaultMaxLog
	}
	if b.maxTimes == 0 {
		b.maxTimes = 16 * min(b.maxKeys, math.MaxInt/16)
	}
	b.errLogs = fmt.Errorf("memory: too many hits in sliding logs: at most %d: %w", b.maxTimes, ErrFull)
}

// checkLimit returns an error if a limit is over the largest one of the algorithm.
func (b *Backend) checkLimit(limit uint64) error {
	if limit <= b.maxLimit {
		return nil
	}
	return &window.RangeError{
		Field: "limit", Value: strconv.FormatUint(limit, 10), Bound: fmt.Sprintf("at most %d with a %v", b.maxLimit, b.algorithm),
	}
}
