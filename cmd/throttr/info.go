package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/inspect"
)

func infoCommand(e *env) *cobra.Command {
	return clientCommand(e, &cobra.Command{
		Use:   "info",
		Short: "print the servers' version, sizes and numbers of requests",
		Long: `Figures per minute are those of the last whole minute. "parked" says whether
no record expires on the server. If it is parked, "throttr info" keeps it so.
"service time" is what a request takes. If it is over 20 µs, clients have been
killed with responses unread: restart the server.

An INFO has the server look through all of its records, which takes 0.35 s for
a million of them. A liveness probe should use "throttr whoami".`,
		Example: `  throttr info
  throttr info --json`,
	}, info)
}

// rate is the JSON of a [inspect.Count].
type rate struct {
	Total     uint64 `json:"total"`
	PerMinute uint64 `json:"per_minute"`
}

// infoJSON is the JSON of a [inspect.Info].
type infoJSON struct {
	Server        string          `json:"server"`
	Version       string          `json:"version"`
	Time          time.Time       `json:"time"`
	RunningSince  time.Time       `json:"running_since"`
	Parked        bool            `json:"parked"`
	ServiceTime   float64         `json:"service_time_seconds"`
	Keys          uint64          `json:"keys"`
	Counters      uint64          `json:"counters"`
	Buffers       uint64          `json:"buffers"`
	CounterBytes  uint64          `json:"counter_bytes"`
	BufferBytes   uint64          `json:"buffer_bytes"`
	Connections   uint64          `json:"connections"`
	Subscriptions uint64          `json:"subscriptions"`
	Channels      uint64          `json:"channels"`
	ReadBytes     rate            `json:"read_bytes"`
	WriteBytes    rate            `json:"write_bytes"`
	Requests      map[string]rate `json:"requests"`
}

func info(ctx context.Context, e *env, c client) (bool, error) {
	infos, err := c.Info(ctx)
	parked := make(map[string]bool)
	for _, s := range c.Stats().Servers {
		parked[s.Server] = s.Parked
	}
	for _, s := range infos { // of the servers that have responded
		each, failed := serviceTimeOf(ctx, e, s.Server)
		err = errors.Join(err, failed)
		e.out.figures(infoOf(s, parked[s.Server], each))
		if e.out.json != nil {
			continue
		}
		e.out.table("requests", ">total", ">per minute")
		names, rates := fieldNames[inspect.Count](s.Requests)
		names, rates = append(names, "read bytes", "write bytes"), append(rates, s.ReadBytes, s.WriteBytes)
		for i, name := range names {
			e.out.add(nil, name, number(rates[i].Total), number(rates[i].PerMinute))
		}
	}
	return true, err
}

// serviceTimeOf measures what a request takes on one of the servers.
func serviceTimeOf(ctx context.Context, e *env, server string) (each time.Duration, err error) {
	cfg, err := e.config()
	if err != nil {
		return 0, err
	}
	cfg.Servers = []string{server}
	err = forEachServer(ctx, cfg, func(c client) (err error) {
		each, err = serviceTime(ctx, c)
		return err
	})
	return each, err
}

// serviceTime measures how long the server takes for each of many requests: the time of 64 that are in
// flight together, less that of one. It is the least of five, as other clients are served, too.
func serviceTime(ctx context.Context, c client) (time.Duration, error) {
	const many = 64
	keys := make([]string, many)
	for i := range keys {
		keys[i] = "throttr:ping"
	}
	least := func(keys []string) (least time.Duration, err error) {
		for i := range 5 {
			start := time.Now()
			if _, err := c.queryAll(ctx, keys); err != nil {
				return 0, err
			}
			if d := time.Since(start); i == 0 || d < least {
				least = d
			}
		}
		return least, nil
	}
	one, err := least(keys[:1])
	if err != nil {
		return 0, err
	}
	all, err := least(keys)
	return max(0, all-one) / (many - 1), err
}

func formatMicroseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

func infoOf(s inspect.Info, parked bool, each time.Duration) infoJSON {
	r := infoJSON{
		Server: s.Server, Version: s.Version, Time: s.Time, RunningSince: s.RunningSince, Parked: parked, ServiceTime: each.Seconds(),
		Keys: s.Keys, Counters: s.Counters, Buffers: s.Buffers,
		CounterBytes: s.CounterBytes, BufferBytes: s.BufferBytes,
		Connections: s.Connections, Subscriptions: s.Subscriptions, Channels: s.Channels,
		ReadBytes: rate(s.ReadBytes), WriteBytes: rate(s.WriteBytes), Requests: map[string]rate{},
	}
	names, rates := fieldNames[inspect.Count](s.Requests)
	for i, name := range names {
		r.Requests[name] = rate(rates[i])
	}
	return r
}
