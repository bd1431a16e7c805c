// Throttr is a client of Throttr servers for the shell. It also measures their speed, and runs a
// mock server.
//
//	throttr mock -addr 127.0.0.1:9000
//	throttr hit -scale 1m -limit 100 user:42
//	throttr help
//
// docs/command.md shows the output of every command. The exit status is 0; or 1 if the outcome
// was negative, such as a denied hit or a key that is not found; or 2 after an error.
package main

//go:generate sh -c "go run . help -markdown >../../docs/command-reference.md"

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

// The exit statuses.
const (
	statusOK    = 0
	statusNo    = 1
	statusError = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status, soon after ctx has ended.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runWith(ctx, &globals{servers: os.Getenv("THROTTR_SERVERS"), timeout: defaultTimeout}, args, stdin, stdout, stderr)
}

// runWith is run with these defaults of the flags.
func runWith(ctx context.Context, g *globals, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name, act, err := parse(g, args)
	var help *helpError
	switch {
	case errors.As(err, &help):
		if err := help.print(stdout); err != nil {
			return statusError
		}
		return statusOK
	case err != nil:
		printError(stderr, name, err)
		fmt.Fprintf(stderr, "Try: %s\n", strings.TrimSpace("throttr help "+name))
		return statusError
	}
	out := newOutput(stdout, g.json)
	ok, err := act(ctx, &env{globals: g, stdin: stdin, out: out, stdout: stdout, stderr: stderr})
	if flushErr := out.flush(); err == nil {
		err = flushErr
	}
	switch {
	case err != nil:
		printError(stderr, name, err)
		return statusError
	case !ok:
		return statusNo
	}
	return statusOK
}

// printError prints an error in one line.
func printError(stderr io.Writer, name string, err error) {
	text := strings.ReplaceAll(err.Error(), "\n", ", ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "throttr: "), "codec: ")
	if errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	fmt.Fprintf(stderr, "%s: %s\n", strings.TrimSpace("throttr "+name), text)
}

// parse parses the command line. It returns the name of the command, if it knows it, and the
// action.
func parse(g *globals, args []string) (name string, act action, err error) {
	flags := newFlags("throttr")
	g.define(flags, timeoutUsage)
	wantVersion := flags.Bool("version", false, "")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return "", nil, helpFor(overview)
		}
		return "", nil, err
	}
	if *wantVersion {
		name, args = versionCommand.name, flags.Args()
		act, err = versionCommand.parse(g, args)
		return name, act, err
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
	act, err = c.parse(g, args)
	return name, act, err
}
