package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
)

func whoamiCommand(e *env) *cobra.Command {
	return clientCommand(e, &cobra.Command{
		Use:     "whoami",
		Short:   "print the id that each server gave to a connection",
		Long:    "The connections are closed at the end of the command.",
		Example: "  throttr whoami",
	}, whoami)
}

// identityJSON is the JSON of a connection's id.
type identityJSON struct {
	Server string `json:"server"`
	ID     string `json:"id"`
}

func whoami(ctx context.Context, e *env, c client) (bool, error) {
	e.out.table("server", "id")
	ids, err := c.WhoAmI(ctx)
	for _, i := range ids {
		e.out.add(identityJSON{i.Server, i.ID.String()}, i.Server, i.ID.String())
	}
	return true, err
}

func connectionsCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "connections [id...]",
		Short: "list the open connections, or print all figures of some",
		Long: `The connections of this command are included.

Exit status 1: no open connection has the id.`,
		Example: `  throttr connections
  throttr connections --json 0123456789abcdef0123456789abcdef`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]codec.ConnID, len(args))
			for i, arg := range args {
				b, err := hex.DecodeString(arg)
				if err != nil || len(b) != len(ids[i]) {
					return fmt.Errorf("id %q is not of 32 hexadecimal digits", arg)
				}
				ids[i] = codec.ConnID(b)
			}
			return e.withClient(cmd.Context(), func(ctx context.Context, c client) (bool, error) {
				if len(ids) == 0 {
					return connections(ctx, e, c)
				}
				return someConnections(ctx, e.out, c, ids)
			})
		},
	}
}

// connectionJSON is the JSON of a connection.
type connectionJSON struct {
	Server         string            `json:"server"`
	ID             string            `json:"id"`
	Type           string            `json:"type"`
	Kind           string            `json:"kind"`
	Address        string            `json:"address"`
	ConnectedAt    time.Time         `json:"connected_at"`
	ReadBytes      uint64            `json:"read_bytes"`
	WriteBytes     uint64            `json:"write_bytes"`
	PublishedBytes uint64            `json:"published_bytes"`
	ReceivedBytes  uint64            `json:"received_bytes"`
	AllocatedBytes uint64            `json:"allocated_bytes"`
	ConsumedBytes  uint64            `json:"consumed_bytes"`
	Requests       map[string]uint64 `json:"requests"`
}

func connectionOf(c inspect.Connection) connectionJSON {
	r := connectionJSON{
		Server: c.Server, ID: c.ID.String(), Type: c.Type.String(), Kind: c.Kind.String(),
		Address: address(c), ConnectedAt: c.ConnectedAt,
		ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes,
		PublishedBytes: c.PublishedBytes, ReceivedBytes: c.ReceivedBytes,
		AllocatedBytes: c.AllocatedBytes, ConsumedBytes: c.ConsumedBytes,
		Requests: map[string]uint64{},
	}
	names, counts := fieldNames[uint64](c.Requests)
	for i, name := range names {
		r.Requests[name] = counts[i]
	}
	return r
}

// address returns the address of the client of a connection, or "" for a unix socket.
func address(c inspect.Connection) string {
	switch {
	case c.Addr.IsValid():
		return c.Addr.String()
	case c.Addr.Port() != 0: // the server has truncated the address
		return fmt.Sprintf("?:%d", c.Addr.Port())
	}
	return ""
}

func connections(ctx context.Context, e *env, c client) (bool, error) {
	e.out.serverTables(c, "id", "address", ">age", ">requests")
	err := each(c.Connections(ctx), func(o inspect.Connection) {
		_, counts := fieldNames[uint64](o.Requests)
		requests := uint64(0)
		for _, n := range counts {
			requests += n
		}
		r := connectionOf(o)
		e.out.serverRow(o.Server, r, r.ID, cmp.Or(r.Address, r.Kind), formatAge(r.ConnectedAt, time.Now()), number(requests))
	})
	return true, err
}

// someConnections prints the connections with these ids, on any server.
func someConnections(ctx context.Context, out *output, c client, ids []codec.ConnID) (bool, error) {
	return forAll(ids, func(id codec.ConnID) (bool, error) {
		for _, s := range c.Stats().Servers {
			o, ok, err := c.Connection(ctx, s.Server, id)
			if ok {
				printConnection(out, o)
			}
			if ok || err != nil {
				return ok, err
			}
		}
		out.table("", "")
		out.add(missingJSON{ID: id.String()}, id.String(), "not found")
		return false, nil
	})
}

// missingJSON is the JSON of a connection that is not found.
type missingJSON struct {
	ID    string `json:"id"`
	Found bool   `json:"found"`
}

// printConnection prints all figures of a connection.
func printConnection(out *output, c inspect.Connection) {
	out.figures(connectionOf(c))
	if out.json != nil {
		return
	}
	out.table("requests", ">total")
	names, counts := fieldNames[uint64](c.Requests)
	for i, name := range names {
		out.add(nil, name, number(counts[i]))
	}
}
