// Package goredis keeps rate-limit windows on Redis or Valkey with the client go-redis, on one
// server, behind Sentinel or on a cluster. Any number of processes share exact windows, with one
// round trip per hit.
//
//	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
//	defer client.Close()
//
//	limiter := throttr.NewRateLimit(goredis.New(client))
//	res, err := limiter.Hit(ctx, "user:42", time.Minute, 100)
//
// The windows are those of package redisbackend, which uses the client rueidis: both can share
// them. Package [rediswindow] documents errors, data and accuracy.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// New returns a backend that keeps its windows on the server or cluster of client: a
// [redis.Client], also of Sentinel, or a [redis.ClusterClient]. The caller still owns the client,
// may use it for other things, and closes it. New panics if client or an option
// is nil, or if client is a [redis.Ring].
//
// With a client of another type, List needs the method ForEachMaster, which one that embeds a [redis.ClusterClient]
// has; otherwise it returns [window.ErrUnsupported].
//
// A call is never sent again, whatever the MaxRetries of the client is: the server may have executed it.
func New(client redis.UniversalClient, opts ...rediswindow.Option) *rediswindow.Backend {
	if client == nil {
		panic("goredis: New: client is nil")
	}
	return rediswindow.New(newAdapter(client), opts...)
}

// adapter is a [rediswindow.Client].
type adapter struct {
	client  redis.UniversalClient
	name    string
	cluster bool
	ends    bool // a call of the client ends at the deadline of its ctx
}

func newAdapter(client redis.UniversalClient) adapter {
	a := adapter{client: client, name: "redis", cluster: true} // also something that embeds a client of a cluster
	switch client := client.(type) {
	case *redis.Client:
		a.name = client.Options().Addr
		a.cluster = false
		a.ends = client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		a.ends = client.Options().ContextTimeoutEnabled
		if addrs := client.Options().Addrs; len(addrs) > 0 {
			a.name = addrs[0]
		}
	case *redis.Ring:
		panic("goredis: New: client is a Ring, which has no slots: takes of several keys would count on wrong servers")
	}
	return a
}

// EvalSHA implements [rediswindow.Client].
func (a adapter) EvalSHA(ctx context.Context, digest string, keys, args []string) (string, error) {
	return a.eval(ctx, "evalsha", digest, keys, args)
}

// Eval implements [rediswindow.Client].
func (a adapter) Eval(ctx context.Context, script string, keys, args []string) (string, error) {
	return a.eval(ctx, "eval", script, keys, args)
}

func (a adapter) eval(ctx context.Context, command, script string, keys, args []string) (string, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, command, script, len(keys))
	for _, words := range [...][]string{keys, args} {
		for _, word := range words {
			all = append(all, word)
		}
	}
	cmd := once{redis.NewCmd(ctx, all...)}
	a.client.Process(ctx, cmd)
	reply, err := cmd.Text()
	return reply, clientError(err)
}

// Scan implements [rediswindow.Client].
func (a adapter) Scan(ctx context.Context, match string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		nodes, err := a.primaries(ctx)
		for _, node := range nodes {
			names := node.Scan(ctx, 0, match, scanCount).Iterator()
			for names.Next(ctx) {
				if !yield(names.Val(), nil) {
					return
				}
			}
			if err = names.Err(); err != nil {
				break
			}
		}
		if err != nil {
			yield("", clientError(err))
		}
	}
}

// scanCount is how many keys a server looks at for an answer to SCAN.
const scanCount = 256

// primaries returns clients of the primaries. A [redis.ClusterClient] has ForEachMaster, and so has what embeds one.
func (a adapter) primaries(ctx context.Context) (nodes []redis.Cmdable, err error) {
	if !a.cluster {
		return []redis.Cmdable{a.client}, nil
	}
	cluster, ok := a.client.(interface {
		ForEachMaster(ctx context.Context, f func(ctx context.Context, node *redis.Client) error) error
	})
	if !ok {
		return nil, fmt.Errorf("%w: to list what servers have, %T needs the method ForEachMaster",
			window.ErrUnsupported, a.client)
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// Subscribe implements [rediswindow.Subscriber].
func (a adapter) Subscribe(ctx context.Context, channel string, received func(message string)) error {
	subscription := a.client.Subscribe(ctx, channel)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })() // to receive does not end when ctx is canceled
	for {
		m, err := subscription.Receive(ctx)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *redis.Subscription:
			received("")
		case *redis.Message:
			received(m.Payload)
		}
	}
}

// Punctual implements [rediswindow.Client].
func (a adapter) Punctual() bool { return a.ends }

// Cluster implements [rediswindow.Client].
func (a adapter) Cluster() (bool, error) { return a.cluster, nil }

// Name implements [rediswindow.Client].
func (a adapter) Name() string { return a.name }

// clientError returns an error of the client as a [rediswindow.Client] does.
func clientError(err error) error {
	var reply redis.Error
	return redisclient.ClientError(err, redis.ErrClosed, errors.As(err, &reply))
}

// once is a command that the client never sends again.
type once struct{ *redis.Cmd }

// NoRetry is asked by the client before it sends the command again.
func (once) NoRetry() bool { return true }
