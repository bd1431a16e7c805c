package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseDuration is [time.ParseDuration] with clearer errors, and with days of 24 hours, such as 30d.
func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("a duration needs a unit, such as %ss", text)
	}
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseInt(number, 10, 64)
		const day, most = 24 * time.Hour, math.MaxInt64 / (24 * time.Hour)
		if err == nil && -most <= time.Duration(days) && time.Duration(days) <= most {
			return time.Duration(days) * day, nil
		}
	}
	return 0, errors.New("not a duration such as 60s, 1h30m or 7d")
}

// formatScale formats a duration without the units that are 0 at its end: 1m, and not 1m0s.
func formatScale(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}
