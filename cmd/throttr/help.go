package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
)

// helpText is the help of the program, and, after a line such as "## hit key...", that of a command: what it does,
// and more about it. Arguments in brackets need not be there.
//
//go:embed help.txt
var helpText string

// command is a command of the program.
type command struct {
	name  string
	setup func(e *env, f *flags) action // defines its flags
	args  string                        // such as "key..."
	short string                        // what it does
	long  string                        // more about it
}

// commands returns all commands, in the order of help. Those before firstOfServers are for all stores.
func commands() []*command {
	all := []*command{
		{name: "hit", setup: decide(hit, 1)}, {name: "take", setup: decide(take, 1)}, {name: "wait", setup: decide(wait, 1)},
		{name: "peek", setup: decide(peek, 0)}, {name: "list", setup: list}, {name: "top", setup: watch},
		{name: "forget", setup: forget}, {name: "give-back", setup: giveBack},
		{name: "holders", setup: holders}, {name: "key", setup: storedKey}, {name: "ping", setup: ping},
		{name: "insert", setup: insert}, {name: "query", setup: query}, {name: "update", setup: update},
		{name: "purge", setup: purge}, {name: "set", setup: set}, {name: "get", setup: get},
		{name: "publish", setup: publish}, {name: "subscribe", setup: subscribe}, {name: "info", setup: info},
		{name: "sweep", setup: sweep}, {name: "mock", setup: mockServer},
	}
	for _, c := range all {
		_, text, _ := strings.Cut(helpText, "\n## "+c.name)
		text, _, _ = strings.Cut(text, "\n## ")
		c.args, text, _ = strings.Cut(text, "\n\n")
		c.short, c.long, _ = strings.Cut(text, "\n\n")
	}
	return all
}

// firstOfServers is the first command that is for Throttr servers alone.
const firstOfServers = "insert"

// check checks the number of arguments.
func (c *command) check(args []string) error {
	most := len(strings.Fields(c.args))
	least := most - strings.Count(c.args, "[")
	if len(args) < least || len(args) > most && !strings.Contains(c.args, "...") {
		return fmt.Errorf("there are %d arguments, and it takes%s: see --help", len(args), cmp.Or(c.args, " none"))
	}
	return nil
}

// overview is the help of the program.
func overview() string {
	var b bytes.Buffer
	text, _, _ := strings.Cut(helpText, "\n## ")
	fmt.Fprintln(&b, text)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		if c.name == firstOfServers {
			fmt.Fprint(table, "\nOn Throttr servers alone:\n\n")
		}
		fmt.Fprintf(table, "  %s\t%s\n", c.name, c.short)
	}
	table.Flush()
	return b.String()
}

// help is the help of the command with its flags.
func (c *command) help(f *flags) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "throttr %s: %s.\n\n  throttr %s [flags]%s\n", c.name, c.short, c.name, c.args)
	if long := strings.TrimSpace(c.long); long != "" {
		fmt.Fprintf(&b, "\n%s\n", c.long[:len(c.long)-1])
	}
	fmt.Fprintln(&b, "\nFlags:")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	f.VisitAll(func(one *flag.Flag) {
		name, usage := flag.UnquoteUsage(one)
		if one.DefValue != "" && one.DefValue != "false" {
			usage += " (default " + one.DefValue + ")"
		}
		if usage != "" {
			fmt.Fprintf(table, "  %s\t%s\n", strings.TrimSpace("--"+one.Name+" "+name), usage)
		}
	})
	table.Flush()
	return b.String()
}

// version returns the version of the program, which is that of its module, of Go, and the platform.
func version() string {
	module := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		module = cmp.Or(info.Main.Version, module)
	}
	return fmt.Sprintf("throttr  %s  %s  %s/%s\n", module, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
