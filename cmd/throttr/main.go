// Throttr speaks to Throttr servers from a shell, tells how fast they are, or plays one.
//
//	throttr mock -addr 127.0.0.1:9000
//	throttr hit -scale 1m -limit 100 user:42
//	throttr help
//
// docs/command.md shows every command at work. The exit status is 0; or 1, where the answer
// was no: denied, not found, there already; or 2 after an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// What the program exits with.
const (
	statusYes   = 0
	statusNo    = 1
	statusError = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It ends when ctx does, and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	g := &globals{servers: os.Getenv("THROTTR_SERVERS"), timeout: defaultTimeout}
	name, job, err := parse(g, args)
	var want *helpError
	switch {
	case errors.As(err, &want):
		if err := want.print(stdout); err != nil {
			return statusError
		}
		return statusYes
	case err != nil:
		complain(stderr, name, err)
		fmt.Fprintf(stderr, "Try: %s\n", strings.TrimSpace("throttr help "+name))
		return statusError
	}
	out := newOutput(stdout, g.json)
	yes, err := job(ctx, &env{globals: g, stdin: stdin, out: out, stderr: stderr})
	if flushed := out.flush(); err == nil {
		err = flushed
	}
	switch {
	case err != nil:
		complain(stderr, name, err)
		return statusError
	case !yes:
		return statusNo
	}
	return statusYes
}

// complain says in one line what has gone wrong.
func complain(stderr io.Writer, name string, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", ", ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "throttr: "), "codec: ")
	if errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	fmt.Fprintf(stderr, "%s: %s\n", strings.TrimSpace("throttr "+name), text)
}

// parse reads the command line. It returns the command's name as far as it is known, and
// what is to be done.
func parse(g *globals, args []string) (name string, job task, err error) {
	flags := newFlags("throttr")
	g.define(flags, wholeCommand)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return "", nil, &helpError{}
		}
		return "", nil, err
	}
	if flags.NArg() == 0 {
		return "", nil, errors.New("no command given")
	}
	name, args = flags.Arg(0), flags.Args()[1:]
	if name == "help" {
		err := help(args)
		return "", nil, err
	}
	c, ok := find(name)
	if !ok {
		return "", nil, fmt.Errorf("there is no command %q", name)
	}
	job, err = c.parse(g, args)
	return name, job, err
}
