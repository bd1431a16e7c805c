package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
)

func topCommand(e *env) *cobra.Command {
	t := top{limits: limits{}}
	cmd := &cobra.Command{
		Use:   "top [key...]",
		Short: "watch servers and the keys nearest to limits, or holders on Redis",
		Long: `A live view of requests, hits, records and connections of each server, and of
open windows. It ends with q. Servers do not know limits: with --limit, windows
of a scale are compared with it, and those nearest to their limit come first.
Otherwise those with the most hits do.

  req/s    requests of all kinds
  hits/s   hits that the windows have counted, and places that processes with
           leases have taken ahead: servers do not know which are spent
  over/s   of them, those over the limit. Clients deny most hits of a full
           window by themselves, and servers do not know of these.
  records  of all kinds
  open     windows that are open, of those that were read
  bytes    of all values

It is cheap for the servers: each time, an INFO and a QUERY for up to --sample
records of windows, of 3us each; and now and then a LIST, for 1% of the time at
most. If there are more windows, it reads those that were nearest to their
limits, and others at random. The view says what it costs. --timeout bounds the
time that each view may take.

On Redis, it shows the processes that hold places in flight of keys, or wait for
them, as holders does: first those that hold the most. Each time, it reads all
that is stored of the keys.

Without a terminal, and with --json, it prints one view after the other. With
--once, it prints one view, after one interval.`,
		Example: `  throttr top
  throttr top --limit 100/1m --limit 5000/1h
  throttr top --once --json
  throttr top --servers redis://127.0.0.1:6379 --name exports user:42`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case t.every < minTopInterval:
				return fmt.Errorf("--every %v is less than %v", t.every, minTopInterval)
			case t.sample < 1 || t.keys < 0 || t.list <= 0:
				return fmt.Errorf("--sample %d is less than 1, --keys %d less than 0, or --list %v not more than 0", t.sample, t.keys, t.list)
			}
			redis := onRedis(e.serversOrDefault())
			if err := t.checkHolders(cmd, keys, redis); err != nil {
				return err
			}
			if redis {
				return t.runHolders(cmd.Context(), e, keys)
			}
			return t.run(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	f.Func("limit", "the `limit` of windows of a scale, such as 100/1m; can be repeated", t.limits.add)
	durationVar(f, &t.every, "every", 2*time.Second, "the `time` between two views")
	f.IntVar(&t.sample, "sample", 1000, "the largest `number` of records of windows to read on each server")
	durationVar(f, &t.list, "list", 10*time.Second, "the `time` between two LISTs, which find new keys; it is longer if a LIST takes 1% of it")
	f.IntVarP(&t.keys, "keys", "n", 20, "the `number` of keys or holders to print if the output is not a terminal")
	f.StringVar(&t.name, "name", "", "the `name` of the limit of places in flight, on Redis")
	f.BoolVar(&t.once, "once", false, "print one view and end")
	return cmd
}

// minTopInterval is the shortest time between two views.
const minTopInterval = 100 * time.Millisecond

// top is the command line of top.
type top struct {
	limits limits
	every  time.Duration
	list   time.Duration
	sample int
	keys   int
	name   string
	once   bool
}

// run prints views until ctx ends or the user quits.
func (t *top) run(ctx context.Context, e *env) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	var servers []*topServer
	for _, server := range cfg.Servers {
		one := cfg
		one.Servers = []string{server}
		servers = append(servers, &topServer{server: server, cfg: one, limits: t.limits, most: t.sample, pause: t.list, once: t.once})
	}
	defer closeAll(servers)
	return t.show(ctx, e, func(ctx context.Context) (frame, error) { return t.sampleAll(ctx, servers) })
}

// runHolders is run for the holders of keys on Redis.
func (t *top) runHolders(ctx context.Context, e *env, keys []string) error {
	s := &topHolders{servers: e.serversOrDefault(), name: t.name, keys: keys, every: t.every}
	defer s.close()
	return t.show(ctx, e, s.sample)
}

// frame is what top shows at one time.
type frame interface {
	// lines returns it as lines of at most width, at most height of them. Height 0: as many as there are.
	// Keys says which keys of the keyboard do what.
	lines(width, height int, keys string) []string
	// cut leaves the first n rows.
	cut(n int)
}

// sampler takes a sample. It may return a frame with an error.
type sampler func(ctx context.Context) (frame, error)

// show shows samples, on the screen or one after the other.
func (t *top) show(ctx context.Context, e *env, take sampler) error {
	sample := func(ctx context.Context) (frame, error) {
		if e.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, e.timeout)
			defer cancel()
		}
		return take(ctx)
	}
	if e.out.json == nil && !t.once && isTerminal(e.stdin) && isTerminal(e.stdout) && os.Getenv("TERM") != "dumb" {
		return newScreen(t.every, sample).run(ctx, tea.WithInput(e.stdin), tea.WithOutput(e.stdout))
	}
	return t.watch(ctx, e, sample)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

func closeAll(servers []*topServer) {
	for _, s := range servers {
		if s.client != nil {
			s.client.Close()
		}
	}
}

// watch prints a view at each interval. With --once, the first sample is only the base of rates.
func (t *top) watch(ctx context.Context, e *env, sample sampler) error {
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	for n := 0; ; n++ {
		v, err := sample(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && n == 0:
			return err
		case n > 0 || !t.once:
			if err := t.print(e, v); err != nil {
				return err
			}
		}
		if n > 0 && t.once {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sampleAll samples all servers, and makes a view of the samples. It fails only if all servers
// fail.
func (t *top) sampleAll(ctx context.Context, servers []*topServer) (frame, error) {
	v := &view{Time: time.Now().UTC(), Servers: make([]sampled, len(servers)), Keys: []topKey{}, every: t.every, limits: t.limits}
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { v.Servers[i] = s.sample(ctx) })
	}
	all.Wait()
	var failure error
	failed := 0
	for i, s := range v.Servers {
		if s.err != nil {
			failure = s.err
			failed++
			continue
		}
		v.Cost = max(v.Cost, servers[i].cost(&s, t.every))
		v.Keys = append(v.Keys, s.keys...)
	}
	slices.SortFunc(v.Keys, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.usage, a.usage), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	if failed < len(servers) {
		failure = nil
	}
	return v, failure
}

// print prints a view.
func (t *top) print(e *env, v frame) error {
	v.cut(t.keys)
	if e.out.json != nil {
		e.out.add(v)
		return e.out.flush()
	}
	text := strings.Join(v.lines(80, 0, ""), "\n") + "\n"
	if !t.once {
		text += "\n"
	}
	if _, err := io.WriteString(e.out.w, text); err != nil {
		return err
	}
	return e.out.flush()
}
