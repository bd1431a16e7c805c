package transport_test

import (
	"context"
	"fmt"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
)

// invoke calls the method of the client that sends r, and converts its results to a response.
func invoke[T codec.Value](ctx context.Context, c *throttr.Client[T], r codec.Request) (codec.Response, error) {
	switch r := r.(type) {
	case codec.Insert[T]:
		ok, err := c.Insert(ctx, string(r.Key), r.Quota, r.TTL)
		return codec.Status(ok), err
	case codec.Query:
		a, ok, err := c.Query(ctx, string(r.Key))
		return codec.QueryResponse[T]{Found: ok, Quota: a.Quota, TTL: a.TTL}, err
	case codec.Update[T]:
		ok, err := c.Update(ctx, string(r.Key), r.Attribute, r.Change, r.Value)
		return codec.Status(ok), err
	case codec.Purge:
		ok, err := c.Purge(ctx, string(r.Key))
		return codec.Status(ok), err
	case codec.Set[T]:
		ok, err := c.Set(ctx, string(r.Key), r.Value, r.TTL)
		return codec.Status(ok), err
	case codec.Get:
		a, ok, err := c.Get(ctx, string(r.Key))
		return codec.GetResponse[T]{Found: ok, TTL: a.TTL, Value: a.Value}, err
	case codec.Stat:
		a, ok, err := c.Stat(ctx, string(r.Key))
		return codec.StatResponse{Found: ok, Usage: codec.Usage(a)}, err
	case codec.Publish[T]:
		ok, err := c.Publish(ctx, string(r.Channel), r.Payload)
		return codec.Status(ok), err
	}
	return list(ctx, c, r)
}

// list is invoke for requests about a server as a whole. It makes one fragment of all entries.
func list[T codec.Value](ctx context.Context, c *throttr.Client[T], r codec.Request) (codec.Response, error) {
	var err error
	switch r := r.(type) {
	case codec.List:
		var all []codec.ListEntry[T]
		for e, failed := range c.List(ctx) {
			all, err = append(all, codec.ListEntry[T]{
				Key: []byte(e.Key), Buffer: e.Kind == inspect.Buffer, Unit: e.Unit,
				Expires: nanoseconds(e.ExpiresAt), Bytes: T(e.BytesUsed),
			}), failed
		}
		return codec.ListResponse[T]{Fragments: fragments(all)}, err
	case codec.Stats:
		var all []codec.StatsEntry
		for e, failed := range c.KeyStats(ctx) {
			all, err = append(all, codec.StatsEntry{Key: []byte(e.Key), Usage: codec.Usage(e.Usage)}), failed
		}
		return codec.StatsResponse{Fragments: fragments(all)}, err
	case codec.Connections:
		var all []codec.ConnectionInfo
		for e, failed := range c.Connections(ctx) {
			all, err = append(all, connectionInfo(e)), failed
		}
		return codec.ConnectionsResponse{Fragments: fragments(all)}, err
	case codec.Channels:
		var all []codec.ChannelsEntry
		for e, failed := range c.Channels(ctx) {
			all, err = append(all, codec.ChannelsEntry{
				Name: []byte(e.Name), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes, Connections: e.Connections,
			}), failed
		}
		return codec.ChannelsResponse{Fragments: fragments(all)}, err
	case codec.Connection:
		e, ok, err := c.Connection(ctx, throttr.DefaultServer, r.ID)
		return codec.ConnectionResponse{Found: ok, Connection: connectionInfo(e)}, err
	case codec.Channel:
		all, ok, err := c.Channel(ctx, string(r.Name))
		response := codec.ChannelResponse{Found: ok}
		for _, s := range all {
			response.Subscribers = append(response.Subscribers, codec.Subscriber{
				ID: s.ID, Since: nanoseconds(s.Since), ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
			})
		}
		return response, err
	case codec.Info:
		all, err := c.Info(ctx)
		if err != nil {
			return nil, err
		}
		return infoResponse(all[0]), nil
	case codec.WhoAmI:
		all, err := c.WhoAmI(ctx)
		if err != nil {
			return nil, err
		}
		return codec.WhoAmIResponse{ID: all[0].ID}, nil
	}
	return nil, fmt.Errorf("no method sends %v alone", r.Op())
}

// fragments returns one fragment with all entries, none if there are no entries.
func fragments[E any](entries []E) [][]E {
	if len(entries) == 0 {
		return nil
	}
	return [][]E{entries}
}

func connectionInfo(e inspect.Connection) codec.ConnectionInfo {
	return codec.ConnectionInfo{
		ID: e.ID, Type: e.Type, Transport: e.Kind, IPVersion: 4, IP: e.Addr.Addr().String(), Port: e.Addr.Port(),
		Connected: nanoseconds(e.ConnectedAt), ReadBytes: e.ReadBytes, WriteBytes: e.WriteBytes,
		PublishedBytes: e.PublishedBytes, ReceivedBytes: e.ReceivedBytes,
		AllocatedBytes: e.AllocatedBytes, ConsumedBytes: e.ConsumedBytes, Requests: e.Requests,
	}
}

func infoResponse(i inspect.Info) codec.InfoResponse {
	return codec.InfoResponse{
		Timestamp: uint64(i.Time.Unix()), Requests: i.Requests, ReadBytes: i.ReadBytes, WriteBytes: i.WriteBytes,
		Keys: i.Keys, Counters: i.Counters, Buffers: i.Buffers, CounterBytes: i.CounterBytes, BufferBytes: i.BufferBytes,
		Subscriptions: i.Subscriptions, Channels: i.Channels, RunningSince: nanoseconds(i.RunningSince),
		Connections: i.Connections, Version: i.Version,
	}
}

func nanoseconds(t time.Time) uint64 { return uint64(t.UnixNano()) }
