// Throttr shows and changes what rate limits count, on every store: Redis, Throttr servers, memory. It is also a
// client of Throttr servers, and runs a mock server.
//
//	export THROTTR_URL=redis://127.0.0.1:6379
//	throttr list
//	throttr forget user:42
//	throttr help
//
// docs/command.md shows a session. The exit status is 0; or 1 if the outcome
// was negative, such as a denied hit or a key that is not found; or 2 after an error.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
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

// env is what commands work with.
type env struct {
	store   string
	timeout time.Duration
	stdin   io.Reader
	out     *output
	stdout  io.Writer // what out writes to; for terminals
	stderr  io.Writer
}

// action is what a command does. It returns false if the outcome is negative.
type action func(ctx context.Context, args []string) (bool, error)

// run is the program. It returns the exit status, soon after ctx has ended.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &env{timeout: defaultTimeout, stdin: stdin, out: newOutput(stdout), stdout: stdout, stderr: stderr}
	name, ok, err := e.execute(ctx, args)
	if flushErr := e.out.flush(); err == nil {
		err = flushErr
	}
	switch {
	case err != nil:
		printError(e.stderr, name, err)
		return statusError
	case !ok:
		return statusNo
	}
	return statusOK
}

// execute finds and runs a command. Its name is for errors.
func (e *env) execute(ctx context.Context, args []string) (name string, ok bool, err error) {
	common := newFlags(e)
	for err == nil && len(args) > 0 && isFlag(args[0]) { // flags before the command
		args, err = common.parseOne(args)
	}
	switch {
	case err != nil:
		return "throttr", false, err
	case common.version:
		e.out.text(version())
		return "throttr", true, nil
	case common.help, len(args) == 0, args[0] == "help" && len(args) == 1:
		e.out.text(overview())
		return "throttr", true, nil
	case args[0] == "help":
		args = []string{args[1], "--help"}
	}
	all := commands()
	i := slices.IndexFunc(all, func(c *command) bool { return c.name == args[0] })
	if i < 0 {
		return "throttr", false, fmt.Errorf("there is no command %q: see throttr help", args[0])
	}
	c := all[i]
	name = "throttr " + c.name
	f := newFlags(e)
	do := c.setup(e, f)
	arguments, err := f.parse(args[1:])
	switch {
	case f.help:
		e.out.text(c.help(f))
		return name, true, nil
	case err == nil:
		err = c.check(arguments)
	}
	if err != nil {
		return name, false, err
	}
	ok, err = do(ctx, arguments)
	return name, ok, err
}

// within calls f and bounds its time, unless the timeout is 0.
func within[R any](ctx context.Context, timeout time.Duration, f func(ctx context.Context) (R, error)) (R, error) {
	if timeout > 0 {
		cause := fmt.Errorf("not done after %v, see --timeout", timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, cause)
		defer cancel()
	}
	result, err := f(ctx)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return result, err
}

// forAll calls do with each element until one fails, and reports whether do has returned true for all.
func forAll[K any](all []K, do func(K) (bool, error)) (bool, error) {
	yes := true
	for _, k := range all {
		ok, err := do(k)
		if err != nil {
			return false, err
		}
		yes = yes && ok
	}
	return yes, nil
}

// printError prints an error of a command in one line.
func printError(stderr io.Writer, command string, err error) {
	text := strings.NewReplacer("\n\n", "; ", "\n\t", " ", "\nthrottr: ", ", ", "\n", ", ", ": throttr: ", ": ").
		Replace(strings.TrimSpace(err.Error()))
	text = strings.TrimPrefix(strings.TrimPrefix(text, "throttr: "), "codec: ")
	if errors.Is(err, context.Canceled) {
		text = "interrupted: " + text
	}
	fmt.Fprintf(stderr, "%s: %s\n", command, text)
}
