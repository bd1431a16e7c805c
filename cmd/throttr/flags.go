package main

import (
	"cmp"
	"encoding"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// flags are the flags of a command. They may stand among its arguments.
type flags struct {
	*flag.FlagSet
	help, version bool
}

const defaultTimeout = 10 * time.Second

// newFlags returns the flags of every command.
func newFlags(e *env) *flags {
	f := &flags{FlagSet: flag.NewFlagSet("", flag.ContinueOnError)}
	f.StringVar(&e.store, "store", e.store,
		"`URL` of the store, such as redis://127.0.0.1:6379 (default $THROTTR_URL, or throttr://127.0.0.1:9000)")
	f.duration(&e.timeout, "timeout", "the `time` that the command may take (default 10s); 0: no limit; of top and subscribe: that a part of it may take")
	f.BoolFunc("json", "print JSON, one object a line", e.out.setJSON)
	f.BoolVar(&f.help, "help", false, "")
	f.BoolVar(&f.version, "version", false, "")
	return f
}

// isFlag reports whether an argument is a flag: -3 is a number, and - is standard input.
func isFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9') && arg[1] != '.'
}

// parse sets flags, and returns the other arguments. All that follows -- is an argument.
func (f *flags) parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		switch {
		case args[0] == "--":
			return append(rest, args[1:]...), nil
		case !isFlag(args[0]):
			rest = append(rest, args[0])
			args = args[1:]
		default:
			if args, err = f.parseOne(args); err != nil {
				return nil, err
			}
		}
	}
	return rest, nil
}

// parseOne sets the flag at the start of args, and returns what follows it.
func (f *flags) parseOne(args []string) ([]string, error) {
	name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[0], "-"), "-"), "=")
	args = args[1:]
	if name == "h" {
		name = "help"
	}
	known := f.Lookup(name)
	if known == nil {
		return nil, fmt.Errorf("--%s is no flag here: see --help, and put -- before arguments that look like flags", name)
	}
	if boolean, ok := known.Value.(interface{ IsBoolFlag() bool }); !given && ok && boolean.IsBoolFlag() {
		value, given = "true", true
	}
	if !given {
		if len(args) == 0 {
			return nil, fmt.Errorf("--%s needs a value", name)
		}
		value, args = args[0], args[1:]
	}
	if err := f.Set(name, value); err != nil {
		return nil, fmt.Errorf("--%s %s: %w", name, value, err)
	}
	return args, nil
}

// isSet reports whether one of some flags was given.
func (f *flags) isSet(names ...string) (set bool) {
	f.Visit(func(one *flag.Flag) { set = set || slices.Contains(names, one.Name) })
	return set
}

// number defines a flag for a whole number from least to most, whose default is the present value.
func number[N int | uint8 | uint64](f *flags, n *N, name string, least, most uint64, usage string) {
	f.Func(name, usage, func(text string) error {
		parsed, err := parseNumber(text, least, most)
		*n = N(parsed)
		return err
	})
}

// duration defines a flag for a duration of 0 or more, whose default is the present value.
func (f *flags) duration(d *time.Duration, name, usage string) {
	f.Func(name, usage, func(text string) (err error) {
		if *d, err = parseDuration(text); err == nil && *d < 0 {
			err = errors.New("must be at least 0s")
		}
		return err
	})
}

// parseNumber parses a whole number from least to most.
func parseNumber(text string, least, most uint64) (uint64, error) {
	digits, negative := strings.CutPrefix(text, "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, errors.New("must be a whole number")
	case negative || err == nil && n < least:
		return 0, fmt.Errorf("must be at least %d", least)
	case err != nil || n > most:
		return 0, fmt.Errorf("must be at most %d", most)
	}
	return n, nil
}

// text defines a flag of a value that has a text. An empty one is a mistake, such as a shell variable that is not set.
func (f *flags) text(value encoding.TextUnmarshaler, name, usage string) {
	f.Func(name, usage, func(text string) error {
		if text == "" {
			return errors.New("must not be empty")
		}
		return value.UnmarshalText([]byte(text))
	})
}

// limitFlags are the flags of a limit.
type limitFlags struct {
	throttr.Limit
	f *flags
}

// limitFlagsOf defines the flags of a limit.
func limitFlagsOf(f *flags) *limitFlags {
	l := &limitFlags{f: f}
	f.StringVar(&l.Name, "name", "", "the `name` of the limit")
	number(f, &l.Max, "limit", 0, math.MaxUint64, "the Max of the limit: how `many` a window may have")
	f.duration(&l.Scale, "scale", "the `length` of a window, such as 1m or 30d")
	f.text(&l.Algorithm, "algorithm", "the `algorithm`: fixed-window (the default), aligned-window, "+
		"token-bucket, sliding-window, sliding-log; with --calendar calendar-window")
	number(f, &l.Burst, "burst", 0, math.MaxUint64, "how `many` a token bucket holds, if not Max")
	f.text(&l.Calendar, "calendar", "in place of --scale: windows are a `unit` of the calendar: day, week, month, year")
	f.StringVar(&l.Zone, "zone", "", "the time `zone` of the calendar, such as Europe/Berlin, if not UTC: each zone has another count")
	number(f, &l.StartDay, "start-day", 0, 31, "the `day` of the month, or of the week from 1 (Monday), on which windows start")
	return l
}

// limit returns the limit, for a command that needs one.
func (l *limitFlags) limit() (throttr.Limit, error) {
	if l.Scale == 0 && l.Calendar == 0 {
		return l.Limit, errors.New("--scale, or --calendar, is missing: a count belongs to it, and to --name and --algorithm")
	}
	byDefault := throttr.FixedWindow
	if l.Scale == 0 {
		byDefault = throttr.CalendarWindow
	}
	l.Algorithm = cmp.Or(l.Algorithm, byDefault)
	return l.Limit, nil
}

// matches reports whether a limit has what the flags say, as far as they were given.
func (l *limitFlags) matches(o throttr.Limit) bool {
	return (!l.f.isSet("name") || l.Name == o.Name) && (l.Scale == 0 || l.Scale == o.Scale) &&
		(l.Algorithm == 0 || l.Algorithm == o.Algorithm) && (l.Calendar == 0 || l.Calendar == o.Calendar) &&
		(!l.f.isSet("zone") || l.Zone == o.Zone) && (l.StartDay == 0 || l.StartDay == max(o.StartDay, 1))
}
