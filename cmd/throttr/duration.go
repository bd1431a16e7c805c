package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"
)

// duration is a flag like that of [flag.Duration]. Its error explains that a number needs a
// unit.
type duration time.Duration

// durationVar defines a flag that sets d. Its default is value.
func durationVar(f *flag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*duration)(d), name, usage)
}

// durationFlag is durationVar with a new variable and the default 0.
func durationFlag(f *flag.FlagSet, name, usage string) *time.Duration {
	d := new(time.Duration)
	durationVar(f, d, name, 0, usage)
	return d
}

// String implements flag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Set implements flag.Value.
func (d *duration) Set(text string) error {
	v, err := parseDuration(text)
	*d = duration(v)
	return err
}

// parseDuration is [time.ParseDuration] with clearer errors.
func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("a duration needs a unit, such as %ss", text)
	}
	return 0, errors.New("not a duration such as 60s or 1h30m")
}
