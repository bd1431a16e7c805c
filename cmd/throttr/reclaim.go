package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/dial"
)

const (
	// reclaimConns connections with reclaimRequests requests in flight each make a server use all of
	// the room for 40,960 responses that it looks through for each request, and free it (H16).
	reclaimConns    = 42
	reclaimRequests = 1000
)

func reclaimCommand(e *env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reclaim",
		Short: "make servers fast again that clients have made slow",
		Long: `A response that a client leaves unread, because it was killed or has closed
its connection too early, is looked through by the server with each further
request of anybody. "throttr info" shows the time of a request: 6 to 10 µs on
a fresh server, up to 85 µs on such a one.

The command opens 42 connections to each server, sends 1,000 QUERYs on each
and reads all responses. The server gets the room of the unread responses
back. It costs everybody else a stall of 3 s or so. A restart of the server
does the same, and loses its records.`,
		Example: "  throttr reclaim\n  throttr reclaim --yes --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !confirmed(e, "This stalls all clients of the servers for some seconds. Go on? [y/N] ") {
				return errors.New("not confirmed; see --yes")
			}
			return withTimeout(cmd.Context(), e.timeout, func(ctx context.Context) (bool, error) { return true, reclaim(ctx, e) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// confirmed asks a question and reports whether the answer is yes.
func confirmed(e *env, question string) bool {
	fmt.Fprint(e.stderr, question)
	answer, _ := bufio.NewReader(e.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// reclaimJSON is the JSON of what reclaim has done.
type reclaimJSON struct {
	Server string  `json:"server"`
	Before float64 `json:"service_time_before_seconds"`
	After  float64 `json:"service_time_after_seconds"`
}

func reclaim(ctx context.Context, e *env) error {
	cfg, err := e.config()
	if err != nil {
		return err
	}
	e.out.table("server", ">before", ">after")
	return forEachServer(ctx, cfg, func(i int, c client) error {
		one, server := cfg, cfg.Servers[i]
		one.Servers = []string{server}
		before, err := serviceTime(ctx, c)
		if err != nil {
			return err
		}
		if err := useAllRoom(ctx, one, c); err != nil {
			return err
		}
		after, err := serviceTime(ctx, c)
		if err == nil {
			e.out.add(reclaimJSON{server, before.Seconds(), after.Seconds()}, server, formatMicroseconds(before), formatMicroseconds(after))
		}
		return err
	})
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

// useAllRoom has a server use all of its room for responses, and reads these.
func useAllRoom(ctx context.Context, cfg throttr.Config, c client) error {
	conns := make([]net.Conn, 0, reclaimConns)
	defer func() {
		for _, nc := range conns {
			nc.Close()
		}
	}()
	var frames []byte
	for range reclaimRequests {
		frames, _ = codec.Query{Key: []byte("throttr:ping")}.AppendBinary(frames)
	}
	for range reclaimConns {
		nc, err := c.dial(ctx, cfg)
		if err != nil {
			return err
		}
		conns = append(conns, nc)
		defer context.AfterFunc(ctx, func() { nc.Close() })()
	}
	errs := make([]error, len(conns))
	var all sync.WaitGroup
	for i, nc := range conns {
		all.Go(func() {
			if _, errs[i] = nc.Write(frames); errs[i] == nil {
				_, errs[i] = io.ReadFull(nc, make([]byte, reclaimRequests)) // nobody has such a record
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// dial makes a connection to a server.
func (c typed[T]) dial(ctx context.Context, cfg throttr.Config) (net.Conn, error) {
	address, err := dial.ParseAddress(cfg.Servers[0])
	if err != nil {
		return nil, err
	}
	d := &dial.Dialer{Dial: cfg.Dial, TLS: cfg.TLS, Timeout: 5 * time.Second}
	if d.Dial == nil {
		d.Dial = new(net.Dialer).DialContext
	}
	nc, _, err := dial.Connect[T](ctx, &dial.Target{Server: cfg.Servers[0], Address: address, Dialer: d}, false)
	return nc, err
}
