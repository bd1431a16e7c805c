package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration is the value of a flag like that of [time.ParseDuration], with days and clearer errors.
type duration time.Duration

// Type implements pflag.Value.
func (d *duration) Type() string { return "time" }

// String implements pflag.Value. A default of 0 is not worth mention.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return formatScale(time.Duration(*d))
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
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

// formatAge formats how long ago a time was, with the two largest units. A time to come is 0s
// ago: the clocks of servers differ.
func formatAge(since, now time.Time) string {
	d := max(now.Sub(since), 0)
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return formatScale(d.Truncate(time.Minute))
	default:
		return formatScale(d.Truncate(time.Second))
	}
}
