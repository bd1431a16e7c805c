package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// limits are the limits of windows, by scale. A server does not know them.
type limits map[time.Duration]uint64

// add parses a limit such as 100/1m.
func (l limits) add(text string) error {
	number, per, ok := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is not of the form 100/1m", text)
	}
	scale, err := parseDuration(per)
	if err != nil {
		return fmt.Errorf("%q: %w", per, err)
	}
	if scale <= 0 {
		return fmt.Errorf("scale %v is not more than 0", scale)
	}
	l[scale] = n
	return nil
}

// usage returns how much of its limit a count has used, 1 for all; 0 if the limit is unknown or 0.
func (l limits) usage(scale time.Duration, count uint64) float64 {
	if limit := l[scale]; limit > 0 {
		return float64(count) / float64(limit)
	}
	return 0
}

// over returns how many of the hits from before to count are over the limit, if it is known.
func (l limits) over(scale time.Duration, before, count uint64) uint64 {
	limit, ok := l[scale]
	if !ok || count <= limit {
		return 0
	}
	return count - max(before, limit)
}
