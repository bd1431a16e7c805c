// Quickstart demonstrates a rate limit: three users, a limit of 5 hits per 2 s, and a line for
// each hit. It takes some 7 s.
//
//	go run ./examples/quickstart                            (on a mock server in this process)
//	go run ./examples/quickstart -servers 127.0.0.1:9000    (on Throttr servers, separated by commas)
//
// The servers must have values of 2 bytes. For another value size, replace uint16.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec/uint16"
	"github.com/throttr-go/throttr/mockserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	servers := flags.String("servers", "", "addresses of Throttr servers, separated by commas (default: a mock server)")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := quickstart(ctx, *servers, stdout); err != nil {
		fmt.Fprintln(stderr, "quickstart:", strings.ReplaceAll(err.Error(), "\n", ", "))
		return 1
	}
	return 0
}

// quickstart runs the simulation on servers or, if there are none, on a mock server.
func quickstart(ctx context.Context, servers string, out io.Writer) error {
	if servers != "" {
		fmt.Fprintf(out, "Throttr at %s\n", servers)
		return connectAndSimulate(ctx, strings.Split(servers, ","), out)
	}
	srv, err := mockserver.Start(mockserver.WithValueSize(uint16.Size))
	if err != nil {
		return err
	}
	defer srv.Close()
	fmt.Fprintf(out, "a mock server at %s\n", srv.Addr())
	if err := connectAndSimulate(ctx, []string{srv.Addr()}, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nLeft on the mock server: %d records of windows. Expired there: %d. Requests that would have harmed a real server: %d.\n",
		windowRecords(srv), srv.Expired(), len(srv.Violations()))
	return nil
}

// windowRecords returns the number of records of windows. The client keeps two others, with an
// empty name and the name throttr:sweeper.
func windowRecords(srv *mockserver.Server) (n int) {
	for _, key := range srv.Keys() {
		if strings.HasPrefix(key, "w") {
			n++
		}
	}
	return n
}

func connectAndSimulate(ctx context.Context, servers []string, out io.Writer) error {
	client, err := throttr.Connect[uint16.Value](ctx, throttr.Config{Servers: servers})
	if err != nil {
		return err
	}
	defer client.Close()
	return simulate(ctx, throttr.NewRateLimit(client.Backend()), out)
}
