package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/throttr-go/throttr"
)

// env is what commands work with.
type env struct {
	*globals
	stdin  io.Reader
	out    *output
	stdout io.Writer // what out writes to; for terminals
	stderr io.Writer
}

// globals are the flags of every command.
type globals struct {
	servers string
	timeout time.Duration
	json    bool
	dial    func(ctx context.Context, network, address string) (net.Conn, error) // nil: the default; for tests
}

// errNo is the error of a command whose outcome is negative.
var errNo = errors.New("the outcome is negative")

const defaultTimeout = 10 * time.Second

func init() { cobra.EnableCommandSorting = false } // they are in an order of their own

// newRoot returns the program's commands.
func newRoot(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "throttr",
		Short: "a client of Throttr servers, and a mock server",
		Long: `The value size of the servers is detected. Keys that are not printable are
printed like "a\x00b".

Exit status: 0; 1 if the outcome is negative (denied, not found, exists
already); 2 after an error.`,
		Example: `  throttr mock
  throttr hit --scale 1m --limit 100 user:42
  throttr list user:
  throttr top --limit 100/1m`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if e.json {
				e.out.useJSON()
			}
			if e.timeout < 0 {
				return fmt.Errorf("--timeout %v is less than 0", e.timeout)
			}
			return nil
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&e.servers, "servers", e.servers, "`addresses` of the servers, separated by commas, or a URL (default $THROTTR_SERVERS, or 127.0.0.1:9000)")
	durationVar(f, &e.timeout, "timeout", defaultTimeout, "the `time` that the command may take; 0: no limit; top, sweep and subscribe: that of a part, see their help")
	f.BoolVar(&e.json, "json", false, "print JSON, one object per line")
	root.AddCommand(
		hitCommand(e), takeCommand(e), waitCommand(e), resetCommand(e),
		insertCommand(e), queryCommand(e), updateCommand(e), purgeCommand(e),
		setCommand(e), getCommand(e),
		listCommand(e), holdersCommand(e), topCommand(e), statCommand(e), infoCommand(e), sweepCommand(e),
		publishCommand(e), subscribeCommand(e), channelsCommand(e),
		connectionsCommand(e), whoamiCommand(e),
		mockCommand(e),
		versionCommand(e),
	)
	for _, c := range root.Commands() {
		c.ValidArgsFunction = cobra.NoFileCompletions
		c.Flags().SortFlags = false
	}
	info, _ := debug.ReadBuildInfo()
	root.Version = versionOf(info).String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpTemplate("{{.CommandPath}}: {{.Short}}.\n\n{{with .Long}}{{. | trimTrailingWhitespaces}}\n\n{{end}}{{.UsageString}}")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; flags have two dashes, and -- goes before arguments that look like flags: see %s --help", err, cmd.CommandPath())
	})
	return root
}

// withClient connects, calls f, and disconnects. It returns errNo if f returns false.
func (e *env) withClient(ctx context.Context, f func(ctx context.Context, c client) (bool, error)) error {
	return withTimeout(ctx, e.timeout, func(ctx context.Context) (bool, error) {
		c, err := connect(ctx, e.globals)
		if err != nil {
			return false, err
		}
		defer c.Close()
		return f(ctx, c)
	})
}

// withLimiter is withClient for a command that needs only a rate limit, of any backend.
func (e *env) withLimiter(ctx context.Context, f func(ctx context.Context, limiter *throttr.RateLimit) (bool, error)) error {
	servers := e.serversOrDefault()
	scheme, _, _ := strings.Cut(servers, "://")
	if !strings.HasPrefix(scheme, "redis") && scheme != "memory" {
		return e.withClient(ctx, func(ctx context.Context, c client) (bool, error) { return f(ctx, c.limiter()) })
	}
	return withTimeout(ctx, e.timeout, func(ctx context.Context) (bool, error) {
		b, err := openNow(ctx, servers)
		if err != nil {
			return false, err
		}
		defer b.Close()
		return f(ctx, newLimiter(b))
	})
}

// openNow opens a backend, although its URL may say that it is lazy.
func openNow(ctx context.Context, text string) (*throttr.OpenBackend, error) {
	address, query, _ := strings.Cut(text, "?")
	if parameters, err := url.ParseQuery(query); err == nil && len(parameters["lazy"]) == 1 {
		if _, err := strconv.ParseBool(parameters.Get("lazy")); err == nil {
			parameters.Del("lazy")
			text = address + "?" + parameters.Encode()
		}
	}
	return throttr.Open(ctx, text)
}

// withTimeout calls f and bounds its time, unless the timeout is 0. It returns errNo if f returns
// false.
func withTimeout(ctx context.Context, timeout time.Duration, f func(ctx context.Context) (bool, error)) error {
	if timeout > 0 {
		cause := fmt.Errorf("not done after %v, see --timeout: %w", timeout, context.DeadlineExceeded)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, cause)
		defer cancel()
	}
	switch ok, err := f(ctx); {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && !ok:
		return errNo
	default:
		return err
	}
}

// clientCommand makes cmd a command without arguments that connects and does f.
func clientCommand(e *env, cmd *cobra.Command, f func(ctx context.Context, e *env, c client) (bool, error)) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) { return f(ctx, e, c) })
	}
	return cmd
}

// needFlags makes flags of cmd required.
func needFlags(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// complete makes a shell complete a flag of cmd to one of these values.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // there is no such flag
	}
}

// durationVar defines a flag that sets d. Its default is value.
func durationVar(f *pflag.FlagSet, d *time.Duration, name string, value time.Duration, usage string) {
	*d = value
	f.Var((*duration)(d), name, usage)
}
