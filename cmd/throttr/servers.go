package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inspect"
)

// figure is something that a server reports, with the name of its field in JSON.
type figure struct {
	name  string
	value any
}

// rate is the JSON of an [inspect.Count].
type rate struct {
	Total     uint64 `json:"total"`
	PerMinute uint64 `json:"per_minute"`
}

func info(e *env, _ *flags) action {
	return func(ctx context.Context, _ []string) (bool, error) {
		cfg, err := e.config()
		if err != nil {
			return false, err
		}
		reports, failed := make([][]figure, len(cfg.Servers)), make([]error, len(cfg.Servers))
		return within(ctx, e.timeout, func(ctx context.Context) (bool, error) {
			var all sync.WaitGroup
			for i, server := range cfg.Servers {
				one := cfg
				one.Servers = []string{server}
				all.Go(func() { reports[i], failed[i] = infoOf(ctx, one) })
			}
			all.Wait()
			for _, figures := range reports {
				e.report(figures)
			}
			return true, errors.Join(failed...)
		})
	}
}

// infoOf returns what the only server of cfg reports.
func infoOf(ctx context.Context, cfg throttr.Config) ([]figure, error) {
	c, err := connectTo(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	infos, err := c.Info(ctx)
	each, notMeasured := serviceTime(ctx, c)
	if err := cmp.Or(err, notMeasured); err != nil {
		return nil, err
	}
	s := infos[0]
	all := []figure{
		{"server", s.Server}, {"version", s.Version}, {"time", s.Time}, {"running_since", s.RunningSince},
		{"parked", c.Stats().Servers[0].Parked}, {"service_time_seconds", each.Seconds()},
		{"keys", s.Keys}, {"counters", s.Counters}, {"buffers", s.Buffers},
		{"counter_bytes", s.CounterBytes}, {"buffer_bytes", s.BufferBytes},
		{"connections", s.Connections}, {"subscriptions", s.Subscriptions}, {"channels", s.Channels},
		{"read_bytes", rate(s.ReadBytes)}, {"write_bytes", rate(s.WriteBytes)},
	}
	v := reflect.ValueOf(s.Requests)
	for i := range v.NumField() {
		name := strings.ToLower(v.Type().Field(i).Name)
		all = append(all, figure{"requests_" + name, rate(v.Field(i).Interface().(inspect.Count))})
	}
	return all, nil
}

// report prints the figures of a server, unless there are none.
func (e *env) report(figures []figure) {
	object := map[string]any{}
	for _, f := range figures {
		object[f.name] = f.value
		if e.out.json == nil {
			e.out.add(nil, strings.ReplaceAll(strings.TrimSuffix(f.name, "_seconds"), "_", " "), figureText(f.value))
		}
	}
	if e.out.json != nil && len(object) > 0 {
		e.out.add(object)
	}
}

// figureText formats a figure for a table.
func figureText(value any) string {
	switch v := value.(type) {
	case bool:
		return word(v, "yes", "no")
	case time.Time:
		return formatTime(v)
	case float64:
		return fmt.Sprintf("%.1f µs", v*1e6)
	case rate:
		return fmt.Sprintf("%d, %d a minute", v.Total, v.PerMinute)
	}
	return quoted(fmt.Sprint(value)) // a version can be any bytes
}

// serviceTime measures how long the server takes for each of many requests: the time of 64 that are in
// flight together, less that of one. It takes the least of five, as other clients are served, too.
func serviceTime(ctx context.Context, c client) (time.Duration, error) {
	numbers := [2]int{1, 64}
	least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for i := range 10 {
		start := time.Now()
		if err := c.queryMany(ctx, "throttr:ping", numbers[i%2]); err != nil {
			return 0, err
		}
		least[i%2] = min(least[i%2], time.Since(start))
	}
	return max(0, least[1]-least[0]) / 63, nil
}

// swept is the JSON of an [inspect.Swept].
type swept struct {
	Server  string `json:"server"`
	Found   int    `json:"found"`
	Removed int    `json:"removed"`
	Kept    int    `json:"kept"`
	Foreign int    `json:"foreign"`
	DryRun  bool   `json:"dry_run"`
}

func sweep(e *env, f *flags) action {
	dryRun := f.Bool("dry-run", false, "print what would be done, and do nothing")
	columns := []string{"server", "found", "removed", "kept", "foreign"}
	return with(e, e.connect, columns, func(ctx context.Context, c client, _ []string) (bool, error) {
		all, err := c.Sweep(ctx, *dryRun)
		for _, s := range all {
			e.out.add(swept{s.Server, s.Records, s.Removed, s.Kept, s.Foreign, *dryRun}, s.Server, s.Records,
				s.Removed, s.Kept, s.Foreign)
		}
		return true, err
	})
}
