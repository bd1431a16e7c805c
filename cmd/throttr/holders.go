package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/rediswindow"
)

func holdersCommand(e *env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "holders key",
		Short: "list the processes that hold places in flight of a key",
		Long: `For limits of package inflight on Redis. It prints the host and number of each
process that holds places of the key, or waits for them, how many, and when its
lease ends unless it renews it.

Exit status 1: no process does.`,
		Example: "  throttr holders --servers redis://127.0.0.1:6379 --name exports user:42",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTimeout(cmd.Context(), e.timeout, func(ctx context.Context) (bool, error) {
				return holders(ctx, e, args[0], name)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the `name` of the limit")
	return cmd
}

// holder is the JSON of a process that holds places in flight.
type holder struct {
	keyed
	Process          string  `json:"process"`
	Held             uint64  `json:"held"`
	Waiting          uint64  `json:"waiting"`
	LeaseEndsSeconds float64 `json:"lease_ends_seconds"`
}

// newHolder returns the JSON of a process that holds places of a key.
func newHolder(key string, h rediswindow.Holder) holder {
	return holder{keyOf(key), h.Process, h.Held, h.Waiting, h.LeaseEnds.Seconds()}
}

// holdersOf lists the processes that hold places of a key.
type holdersOf interface {
	Holders(ctx context.Context, key, name string) ([]rediswindow.Holder, error)
	Close() error
}

// onRedis reports whether the servers are the URL of Redis.
func onRedis(servers string) bool { return strings.HasPrefix(servers, "redis") }

// openHolders connects to a store that can list holders.
func openHolders(ctx context.Context, servers string) (holdersOf, error) {
	if !onRedis(servers) {
		return nil, errors.New("--servers is not the URL of Redis: there are no places in flight elsewhere that can be listed")
	}
	b, err := openNow(ctx, servers)
	if err != nil {
		return nil, err
	}
	return b.BackendCloser.(holdersOf), nil
}

// holders prints the processes that hold places of a key.
func holders(ctx context.Context, e *env, key, name string) (bool, error) {
	store, err := openHolders(ctx, e.serversOrDefault())
	if err != nil {
		return false, err
	}
	defer store.Close()
	all, err := store.Holders(ctx, key, name)
	e.out.table("process", ">held", ">waiting", ">lease ends in")
	for _, h := range all {
		e.out.add(newHolder(key, h), quoted(h.Process), number(h.Held), number(h.Waiting), formatScale(h.LeaseEnds))
	}
	return len(all) > 0, err
}
