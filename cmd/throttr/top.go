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
		Use:   "top",
		Short: "watch servers, and the keys nearest to their limits",
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

Without a terminal, and with --json, it prints one view after the other. With
--once, it prints one view, after one interval.`,
		Example: `  throttr top
  throttr top --limit 100/1m --limit 5000/1h
  throttr top --once --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case t.every < minTopInterval:
				return fmt.Errorf("--every %v is less than %v", t.every, minTopInterval)
			case t.sample < 1 || t.keys < 0 || t.list <= 0:
				return fmt.Errorf("--sample %d is less than 1, --keys %d less than 0, or --list %v not more than 0", t.sample, t.keys, t.list)
			}
			return t.run(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	f.Func("limit", "the `limit` of windows of a scale, such as 100/1m; can be repeated", t.limits.add)
	durationVar(f, &t.every, "every", 2*time.Second, "the `time` between two views")
	f.IntVar(&t.sample, "sample", 1000, "the largest `number` of records of windows to read on each server")
	durationVar(f, &t.list, "list", 10*time.Second, "the `time` between two LISTs, which find new keys; it is longer if a LIST takes 1% of it")
	f.IntVarP(&t.keys, "keys", "n", 20, "the `number` of keys to print if the output is not a terminal")
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
	sample := func(ctx context.Context) (*view, error) { return t.sampleAll(ctx, e, servers) }
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
func (t *top) watch(ctx context.Context, e *env, sample func(context.Context) (*view, error)) error {
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
func (t *top) sampleAll(ctx context.Context, e *env, servers []*topServer) (*view, error) {
	if e.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.timeout)
		defer cancel()
	}
	v := &view{at: time.Now(), every: t.every, limits: t.limits, servers: make([]sampled, len(servers))}
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { v.servers[i] = s.sample(ctx) })
	}
	all.Wait()
	var failure error
	failed := 0
	for i, s := range v.servers {
		v.names = append(v.names, servers[i].server)
		if s.err != nil {
			failure = s.err
			failed++
			continue
		}
		v.cost = max(v.cost, servers[i].cost(&s, t.every))
		v.keys = append(v.keys, s.keys...)
	}
	slices.SortFunc(v.keys, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.usage, a.usage), cmp.Compare(b.count, a.count), cmp.Compare(a.name.Key, b.name.Key))
	})
	if failed < len(servers) {
		failure = nil
	}
	return v, failure
}

// print prints a view.
func (t *top) print(e *env, v *view) error {
	if e.out.json != nil {
		e.out.add(t.record(v))
		return e.out.flush()
	}
	v.keys = v.keys[:min(len(v.keys), t.keys)]
	text := strings.Join(v.lines(80, 0, ""), "\n") + "\n"
	if !t.once {
		text += "\n"
	}
	if _, err := io.WriteString(e.out.w, text); err != nil {
		return err
	}
	return e.out.flush()
}

// topRecord is the JSON of a view.
type topRecord struct {
	Time    time.Time         `json:"time"`
	Servers []topServerRecord `json:"servers"`
	Keys    []topKeyRecord    `json:"keys"` // of all servers, first those that are nearest to their limits
	Cost    float64           `json:"cost"` // share of a server's time
}

// topServerRecord is the JSON of a server in a view. Rates are missing in the first view.
type topServerRecord struct {
	Server      string   `json:"server"`
	Error       string   `json:"error,omitempty"`
	Requests    *float64 `json:"requests_per_second,omitempty"`
	Hits        *float64 `json:"hits_per_second,omitempty"`
	Over        *float64 `json:"over_limit_per_second,omitempty"`
	Records     uint64   `json:"records"`
	Windows     int      `json:"open_windows"`
	Connections uint64   `json:"connections"`
	Bytes       uint64   `json:"bytes"`
	ServiceTime float64  `json:"service_time_seconds,omitempty"`
}

// topKeyRecord is the JSON of an open window in a view. Limit is missing if it is not known.
type topKeyRecord struct {
	Server string `json:"server"`
	keyed
	ScaleSeconds  float64 `json:"scale_seconds"`
	Count         uint64  `json:"count"`
	Limit         *uint64 `json:"limit,omitempty"`
	Hits          float64 `json:"hits_per_second"`
	EndsInSeconds float64 `json:"ends_in_seconds"`
}

func (t *top) record(v *view) topRecord {
	r := topRecord{Time: v.at.UTC(), Servers: []topServerRecord{}, Keys: []topKeyRecord{}, Cost: v.cost}
	for i, s := range v.servers {
		one := topServerRecord{Server: v.names[i]}
		if s.err != nil {
			one.Error = s.err.Error()
		} else {
			one.Records, one.Windows, one.Connections, one.Bytes = s.info.Keys, s.open, s.info.Connections, s.info.CounterBytes+s.info.BufferBytes
			one.ServiceTime = s.each.Seconds()
		}
		if s.rates {
			one.Hits = &s.hits
			if s.measured {
				one.Requests = &s.requests
			}
			if len(t.limits) > 0 {
				one.Over = &s.over
			}
		}
		r.Servers = append(r.Servers, one)
	}
	for _, k := range v.keys[:min(len(v.keys), t.keys)] {
		one := topKeyRecord{
			Server: k.server, keyed: keyOf(k.name.key()), ScaleSeconds: k.name.Scale.Seconds(), Count: k.count, Hits: k.rate, EndsInSeconds: k.endsIn.Seconds(),
		}
		if limit, ok := t.limits[k.name.Scale]; ok {
			one.Limit = &limit
		}
		r.Keys = append(r.Keys, one)
	}
	return r
}
