package main

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"
)

// duration is a flag. It is one of [flag.Duration], but that it says what is wrong with a
// number that has no unit.
type duration time.Duration

// durationVar defines a flag that sets d, and is value by default.
func durationVar(f *flag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*duration)(d), name, usage)
}

// durationFlag is durationVar with a variable of its own, 0 by default.
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

// parseDuration is time.ParseDuration with errors for people.
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
