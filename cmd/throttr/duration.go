package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration is the value of a flag for a duration of 0 or more.
type duration time.Duration

// String implements flag.Value. A default of 0 is not worth mention.
func (d *duration) String() string {
	if d == nil || *d == 0 {
		return ""
	}
	return formatScale(time.Duration(*d))
}

// Set implements flag.Value.
func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	if err == nil && v < 0 {
		err = errors.New("must be at least 0s")
	}
	*d = duration(v)
	return err
}

var errNotDuration = errors.New("not a duration such as 60s, 1h30m or 7d")

// parseDuration is [time.ParseDuration] with clearer errors and with days, such as 1d or 1d12h. A
// day has 24 hours.
func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("a duration needs a unit, such as %ss", text)
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	if !negative {
		unsigned = strings.TrimPrefix(text, "+")
	}
	days, rest, ok := strings.Cut(unsigned, "d")
	if !ok || strings.Trim(days, "0123456789.") != "" {
		return 0, errNotDuration
	}
	hours, err := time.ParseDuration(days + "h") // exact, where a float of days times 24 is not
	if err != nil || hours > math.MaxInt64/24 {
		return 0, errNotDuration
	}
	clock, err := time.ParseDuration("0h" + rest)
	d := 24*hours + clock
	if err != nil || clock < 0 || d < 0 {
		return 0, errNotDuration
	}
	if negative {
		d = -d
	}
	return d, nil
}

// formatScale formats a duration without the units that are 0 at its end: 1m, and not 1m0s.
func formatScale(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
