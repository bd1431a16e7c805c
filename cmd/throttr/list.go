package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/window"
)

// batchSize is the number of records that are read at once.
const batchSize = 256

func listCommand(e *env) *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use:   "list [prefix]",
		Short: "list open windows, counters and buffers",
		Long: `With a prefix, it lists only what has a key that begins so. Each server lists
its records in an order of its own. Of a window with a key over 80 bytes, only
"#" and a hash of the key is known.

The command reads each window and counter with a QUERY, which takes a server
3us, besides the LIST of all records. With --records, it prints the records as
they are listed: those of windows, open or not, under their names. A record can
be listed for up to 10 s after it has expired.`,
		Example: `  throttr list
  throttr list user:
  throttr list --records --json --timeout 5m`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			if records {
				return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
					return true, listRecords(ctx, e, c, prefix)
				})
			}
			return withTimeout(cmd.Context(), e.timeout, func(ctx context.Context) (bool, error) {
				return true, list(ctx, e, prefix)
			})
		},
	}
	cmd.Flags().BoolVar(&records, "records", false, "print all records under their names, and read none")
	return cmd
}

// listJSON is the JSON of a counter or buffer in a list of records.
type listJSON struct {
	Server string `json:"server"`
	keyed
	Kind      string    `json:"kind"`
	Unit      string    `json:"unit"`
	ExpiresAt time.Time `json:"expires_at"`
	BytesUsed uint64    `json:"bytes_used"`
}

// listRecords lists all records.
func listRecords(ctx context.Context, e *env, c client, prefix string) error {
	e.out.serverTables(c, "kind", ">bytes", "expires", "key")
	return each(c.List(ctx), func(r inspect.Record) {
		if strings.HasPrefix(r.Key, prefix) {
			e.out.serverRow(r.Server, listJSON{r.Server, keyOf(r.Key), r.Kind.String(), r.Unit.String(), r.ExpiresAt, r.BytesUsed},
				r.Kind.String(), number(r.BytesUsed), formatTime(r.ExpiresAt), quoted(r.Key))
		}
	})
}

// listed is the JSON of a window, a counter or a buffer in a list.
type listed struct {
	Server string `json:"server"`
	keyed
	Kind          string  `json:"kind"`
	Count         *uint64 `json:"count,omitempty"` // of a window or a counter
	ScaleSeconds  float64 `json:"scale_seconds,omitempty"`
	EndsInSeconds float64 `json:"ends_in_seconds"`
	Bytes         *uint64 `json:"bytes,omitempty"` // of a buffer
}

// list lists the open windows, the counters and the buffers of all servers.
func list(ctx context.Context, e *env, prefix string) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	e.out.several = len(cfg.Servers) > 1
	e.out.names = []string{"kind", ">count", ">scale", ">ends in", "key"}
	e.out.table(e.out.names...)
	return forEachServer(ctx, cfg, func(c client) error {
		l := lister{out: e.out, client: c}
		err := each(c.List(ctx), func(r inspect.Record) { l.add(ctx, r, prefix) })
		l.read(ctx)
		if l.err != nil {
			err = l.err
		}
		return err
	})
}

// lister prints the records of one server.
type lister struct {
	out     *output
	client  client
	pending []inspect.Record // to read
	err     error            // the first one
}

// add prints a record, at once or with the next ones that are read.
func (l *lister) add(ctx context.Context, r inspect.Record, prefix string) {
	key := r.Key
	if n, ok := fixedwindow.ParseName([]byte(r.Key)); ok {
		key = keyOfWindow(n)
	}
	if !strings.HasPrefix(key, prefix) {
		return
	}
	l.pending = append(l.pending, r)
	if len(l.pending) == batchSize {
		l.read(ctx)
	}
}

// read reads the pending records, and prints those that are still there.
func (l *lister) read(ctx context.Context) {
	if l.err != nil || len(l.pending) == 0 {
		return
	}
	names := make([]string, len(l.pending))
	for i, r := range l.pending {
		names[i] = r.Key
	}
	counters, err := l.client.queryAll(ctx, names)
	if err != nil {
		l.err = err
		return
	}
	now := time.Now()
	for i, r := range l.pending {
		if counters[i].found {
			l.print(r, counters[i], now)
		}
	}
	l.pending = l.pending[:0]
}

// print prints a record, unless it is one of a window that is not open.
func (l *lister) print(r inspect.Record, c counter, now time.Time) {
	o := listed{Server: r.Server, keyed: keyOf(r.Key), Kind: r.Kind.String(), EndsInSeconds: c.ttl.Seconds()}
	count, scale, endsIn := "-", "-", c.ttl
	n, ok := fixedwindow.ParseName([]byte(r.Key))
	switch {
	case ok:
		w, open := openWindow(n, c, l.client.largest(), now)
		if !open {
			return
		}
		o.keyed, o.Kind, o.Count, o.ScaleSeconds, o.EndsInSeconds = keyOf(keyOfWindow(n)), "window", &w.Count, n.Scale.Seconds(), w.Left.Seconds()
		count, scale, endsIn = number(w.Count), formatScale(n.Scale), w.Left
	case r.Kind == inspect.Buffer:
		o.Bytes = &r.BytesUsed
		count = fmt.Sprintf("%d B", r.BytesUsed)
	default:
		o.Count, count = &c.quota, number(c.quota)
	}
	l.out.serverRow(r.Server, o, o.Kind, count, scale, formatRemaining(endsIn, c.unit), quoted(o.Key))
}

// keyOfWindow returns the key of a window for output. Of a long key, only the hash is known.
func keyOfWindow(n fixedwindow.Name) string {
	if n.Hashed {
		return "#" + n.Key
	}
	return n.Key
}

// openWindow returns the window that a record holds, which ends when Left is over at the latest. It returns
// false if none is open. Largest is the largest value of the server.
func openWindow(n fixedwindow.Name, c counter, largest uint64, now time.Time) (w window.Window, open bool) {
	if w, _ = n.Window(largest, c.quota, c.ttl, now); w.ExpiresAt.IsZero() {
		return w, false
	}
	w.Left += c.unit.Duration() // the TTL is rounded down
	return w, true
}

// formatRemaining formats a time with the precision of its unit.
func formatRemaining(d time.Duration, u codec.Unit) string {
	return formatScale(d.Truncate(max(u.Duration(), time.Millisecond)))
}
