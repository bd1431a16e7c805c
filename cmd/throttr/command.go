package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// command is a command of the program.
type command struct {
	name     string
	args     string // follow the flags
	short    string // what it does, in a few words
	long     string // more about it
	no       string // the meaning of exit status 1; "": the command does not exit with it
	examples []string
	local    bool   // does not connect to servers
	timeout  string // usage of -timeout; "": timeoutUsage
	// define defines the flags.
	define func(*flag.FlagSet) parser
}

// parser parses a command's arguments after its flags.
type parser func(args []string) (action, error)

// action does what the command line says. It returns false for exit status 1.
type action func(ctx context.Context, e *env) (ok bool, err error)

// env is the environment of an action.
type env struct {
	*globals
	stdin  io.Reader
	out    *output
	stdout io.Writer // what out writes to; for terminals
	stderr io.Writer
}

// commands are all commands, in the order of the help.
var commands = []command{
	hitCommand, takeCommand, waitCommand, resetCommand,
	insertCommand, queryCommand, updateCommand, purgeCommand,
	setCommand, getCommand,
	listCommand, topCommand, statCommand, infoCommand, sweepCommand,
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

// globals are the flags of every command. They can also be given before its name.
type globals struct {
	servers string
	timeout time.Duration
	json    bool
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil: the default; for tests
}

// timeoutUsage is the usage of -timeout in most commands.
const timeoutUsage = "the `time` that the command may take"

// define defines the flags. Their defaults are the values in g.
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

// flags returns the command's flags and the parser of its arguments.
func (c command) flags(g *globals) (*flag.FlagSet, parser) {
	f := newFlags(c.name)
	parse := c.define(f)
	if c.local {
		g.defineJSON(f)
	} else {
		g.define(f, cmp.Or(c.timeout, timeoutUsage))
	}
	return f, parse
}

// parse parses what follows the command's name.
func (c command) parse(g *globals, args []string) (action, error) {
	f, parse := c.flags(g)
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, helpFor(c.help)
		}
		return nil, err
	}
	if err := misplacedFlag(f, args); err != nil {
		return nil, err
	}
	if g.timeout < 0 {
		return nil, fmt.Errorf("-timeout %v is less than 0", g.timeout)
	}
	return parse(f.Args())
}

// misplacedFlag returns an error if a flag follows an argument: it would count as a key.
func misplacedFlag(f *flag.FlagSet, args []string) error {
	first := len(args) - f.NArg()
	if first > 0 && args[first-1] == "--" {
		return nil
	}
	for _, arg := range f.Args() {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && f.Lookup(name) != nil {
			return fmt.Errorf("%s comes too late: flags go before other arguments, and -- before arguments that look like flags", arg)
		}
	}
	return nil
}

// needKeys returns an error if there is no key.
func needKeys(keys []string) error {
	if len(keys) == 0 {
		return errors.New("no key given")
	}
	return nil
}

// needArgs returns an error unless there is one argument for each name.
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

// needFlags returns an error if one of the flags was not given.
func needFlags(f *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if !isSet(f, name) {
			return fmt.Errorf("-%s is missing", name)
		}
	}
	return nil
}
