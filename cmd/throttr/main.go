// Throttr is a client of Throttr servers for the shell. It also runs a mock server.
//
//	throttr mock --addr 127.0.0.1:9000
//	throttr hit --scale 1m --limit 100 user:42
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
	return runWith(ctx, new(globals), args, stdin, stdout, stderr)
}

// runWith is run with these defaults of the flags.
func runWith(ctx context.Context, g *globals, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &env{globals: g, stdin: stdin, out: newOutput(stdout, false), stdout: stdout, stderr: stderr}
	root := newRoot(e)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(e.out.w)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if flushErr := e.out.flush(); flushErr != nil && (err == nil || errors.Is(err, errNo)) {
		err = flushErr
	}
	switch {
	case errors.Is(err, errNo):
		return statusNo
	case err != nil:
		printError(stderr, cmd.CommandPath(), err)
		return statusError
	}
	return statusOK
}

// printError prints an error of a command in one line.
func printError(stderr io.Writer, command string, err error) {
	text := strings.NewReplacer("\n\n", "; ", "\n\t", " ", "\n", ", ").Replace(strings.TrimSpace(err.Error()))
	text = strings.TrimPrefix(strings.TrimPrefix(text, "throttr: "), "codec: ")
	if errors.Is(err, context.Canceled) {
		text = "interrupted"
	}
	fmt.Fprintf(stderr, "%s: %s\n", command, text)
}
