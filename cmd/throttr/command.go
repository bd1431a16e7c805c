package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// command is one of the things that the program does.
type command struct {
	name     string
	args     string // what follows the flags
	short    string // what it does, in a few words
	long     string // what else there is to know
	examples []string
	local    bool   // speaks to no server
	timeout  string // what -timeout is for; none: the whole command
	// define defines the flags, and returns what reads the arguments behind them.
	define func(*flag.FlagSet) reader
}

// reader reads a command's arguments once its flags are set.
type reader func(args []string) (task, error)

// task does what the command line says, and returns whether the answer was yes.
type task func(ctx context.Context, e *env) (yes bool, err error)

// env is what a task works with.
type env struct {
	*globals
	stdin  io.Reader
	out    *output
	stderr io.Writer
}

// commands are all commands, in the order of the help.
var commands = []command{
	hitCommand, resetCommand,
	insertCommand, queryCommand, updateCommand, purgeCommand,
	setCommand, getCommand,
	listCommand, statCommand, infoCommand,
	publishCommand, subscribeCommand, channelsCommand,
	connectionsCommand, whoamiCommand,
	benchCommand,
	mockCommand,
	versionCommand,
}

func find(name string) (command, bool) {
	for _, c := range commands {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

const defaultTimeout = 10 * time.Second

// globals are the flags of every command, which can be given before its name, too.
type globals struct {
	servers string
	timeout time.Duration
	json    bool
}

// wholeCommand is what -timeout is for, as a rule.
const wholeCommand = "the `time` that the command may take"

// define defines the flags. What they are set to already is their default.
func (g *globals) define(f *flag.FlagSet, timeout string) {
	f.StringVar(&g.servers, "servers", g.servers, "`addresses` of the servers, separated by commas, or a throttr:// URL (default $THROTTR_SERVERS, or 127.0.0.1:9000)")
	durationVar(f, &g.timeout, "timeout", g.timeout, timeout+"; 0: no limit")
	g.defineJSON(f)
}

func (g *globals) defineJSON(f *flag.FlagSet) {
	f.BoolVar(&g.json, "json", g.json, "print JSON, one object per line")
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// flags returns the command's flags, and what reads the arguments behind them.
func (c command) flags(g *globals) (*flag.FlagSet, reader) {
	f := newFlags(c.name)
	read := c.define(f)
	if c.local {
		g.defineJSON(f)
	} else {
		g.define(f, cmp.Or(c.timeout, wholeCommand))
	}
	return f, read
}

// parse reads what follows the command's name.
func (c command) parse(g *globals, args []string) (task, error) {
	f, read := c.flags(g)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, &helpError{command: &c}
		}
		return nil, err
	}
	if err := strayFlag(f, args); err != nil {
		return nil, err
	}
	if g.timeout < 0 {
		return nil, fmt.Errorf("-timeout %v is less than 0", g.timeout)
	}
	return read(f.Args())
}

// strayFlag returns an error where a flag comes after an argument and would be taken for
// a key.
func strayFlag(f *flag.FlagSet, args []string) error {
	first := len(args) - f.NArg()
	if first > 0 && args[first-1] == "--" {
		return nil
	}
	for _, arg := range f.Args() {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && f.Lookup(name) != nil {
			return fmt.Errorf("%s comes too late: flags go before other arguments (or -- before the arguments, where it is none)", arg)
		}
	}
	return nil
}

// needKeys returns an error where there is no key.
func needKeys(keys []string) error {
	if len(keys) == 0 {
		return errors.New("no key given")
	}
	return nil
}

// needArgs returns an error unless there are as many arguments as names.
func needArgs(args []string, names ...string) error {
	switch {
	case len(args) < len(names):
		return fmt.Errorf("no %s given", names[len(args)])
	case len(args) > len(names):
		return fmt.Errorf("%q is one argument too many", args[len(names)])
	}
	return nil
}

// isSet reports whether a flag was given.
func isSet(f *flag.FlagSet, name string) (set bool) {
	f.Visit(func(d *flag.Flag) { set = set || d.Name == name })
	return set
}

// needFlags returns an error unless the flags were given.
func needFlags(f *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if !isSet(f, name) {
			return fmt.Errorf("-%s is missing", name)
		}
	}
	return nil
}
