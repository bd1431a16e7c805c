package main

import (
	"cmp"
	"context"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/inspect"
)

// serverTables starts a table of what all servers have. If there are several servers, each has a
// table of its own, below its address.
func (o *output) serverTables(c client, names ...string) {
	o.several, o.server, o.names = len(c.Stats().Servers) > 1, "", names
	o.table(names...)
}

// serverRow prints a row of such a table.
func (o *output) serverRow(server string, line any, fields ...string) {
	if o.json == nil && o.several && server != o.server {
		o.table("")
		o.add(nil, server+":")
		o.server = server
		o.table(o.names...)
	}
	o.add(line, fields...)
}

// each calls print with the elements of a listing. It returns the listing's error.
func each[E any](listing iter.Seq2[E, error], print func(E)) error {
	for e, err := range listing {
		if err != nil {
			return err
		}
		print(e)
	}
	return nil
}

func statCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "stat [key...]",
		Short: "print how often counters and buffers were read and written",
		Long: `Without a key, it prints all records. Servers update the figures once a minute.

Exit status 1: a key is not found.`,
		Example: `  throttr stat jobs
  throttr stat --json`,
		RunE: func(cmd *cobra.Command, keys []string) error {
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				if len(keys) == 0 {
					return statAll(ctx, e, c)
				}
				return stat(ctx, e.out, c, keys)
			})
		},
	}
}

// statJSON is the JSON of the use of a record. The figures are missing if it is not found.
type statJSON struct {
	Server string `json:"server,omitempty"` // only in a list of all records
	keyed
	Found bool `json:"found"`
	*usage
}

type usage struct {
	Reads           uint64 `json:"reads"`
	Writes          uint64 `json:"writes"`
	ReadsPerMinute  uint64 `json:"reads_per_minute"`
	WritesPerMinute uint64 `json:"writes_per_minute"`
}

var statColumns = []string{">reads", ">writes", ">reads/min", ">writes/min", "key"}

func stat(ctx context.Context, out *output, c client, keys []string) (bool, error) {
	out.table(statColumns...)
	return forAll(keys, func(key string) (bool, error) {
		s, ok, err := c.Stat(ctx, key)
		if line, fields := statOf("", key, s); ok {
			out.add(line, fields...)
		} else if err == nil {
			out.add(statJSON{keyed: keyOf(key)}, "-", "-", "-", "-", quoted(key)+"  not found")
		}
		return ok, err
	})
}

func statAll(ctx context.Context, e *env, c client) (bool, error) {
	e.out.serverTables(c, statColumns...)
	return true, each(c.KeyStats(ctx), func(s inspect.KeyUsage) {
		line, fields := statOf(s.Server, s.Key, s.Usage)
		e.out.serverRow(s.Server, line, fields...)
	})
}

func statOf(server, key string, s inspect.Usage) (statJSON, []string) {
	return statJSON{server, keyOf(key), true, &usage{s.Reads, s.Writes, s.ReadsPerMinute, s.WritesPerMinute}},
		[]string{number(s.Reads), number(s.Writes), number(s.ReadsPerMinute), number(s.WritesPerMinute), quoted(key)}
}

// figures prints what is known of a server or a connection: as JSON, or as a row for each field of these types.
func (o *output) figures(line any) {
	if o.json != nil {
		o.add(line)
		return
	}
	o.table("", "")
	for v, i := reflect.ValueOf(line), 0; i < v.NumField(); i++ {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		text := ""
		switch f := v.Field(i).Interface().(type) {
		case string:
			text = cmp.Or(f, "-")
		case bool:
			text = map[bool]string{true: "yes", false: "no"}[f]
		case uint64:
			text = number(f)
		case time.Time:
			text = formatTime(f)
		case float64:
			name, text = strings.TrimSuffix(name, "_seconds"), formatMicroseconds(time.Duration(f*float64(time.Second)))
		default:
			continue
		}
		o.add(nil, strings.ReplaceAll(name, "_", " "), text)
	}
}

// fieldNames returns the names of a struct's fields in lower case, and their values.
func fieldNames[E any](of any) (names []string, values []E) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		names = append(names, strings.ToLower(v.Type().Field(i).Name))
		values = append(values, v.Field(i).Interface().(E))
	}
	return names, values
}
