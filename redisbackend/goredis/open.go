package goredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// schemes are the schemes of the driver, with those of go-redis.
var schemes = map[string]string{"goredis": "redis", "goredis+tls": "rediss", "goredis+unix": "unix"}

func init() {
	for scheme := range schemes {
		window.Register(scheme, open)
	}
}

// parameters are the URL parameters that go-redis reads, as far as both kinds of clients have them.
var parameters = []string{"addr", "db", "protocol", "client_name", "dial_timeout", "read_timeout", "write_timeout",
	"pool_size", "pool_timeout", "skip_verify", "master_set"}

// reloadInterval is how often the client of a cluster reads which server has which keys. Calls for the keys of a server
// that is down fail until then. By default, go-redis waits 10 s, or a minute from version 9.23 on.
const reloadInterval = 2 * time.Second

// opened is a backend with a client of its own.
type opened struct {
	*rediswindow.Backend
	client redis.UniversalClient
}

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed].
// It can be called more than once.
func (o *opened) Close() error {
	_ = o.Backend.Close()
	if err := redisclient.Close(o.client.Close); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("goredis: %w", err)
	}
	return nil
}

// open opens the backend of a URL.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	u, err := redisclient.Parse(text, parameters...)
	if err != nil {
		return nil, &api.CallError{Package: "goredis", Err: err}
	}
	client, err := clientOf(u)
	if err != nil {
		return nil, &api.CallError{Package: "goredis", Err: u.Malformed(err)}
	}
	o := &opened{New(client, rediswindow.WithPrefix(u.Prefix), rediswindow.WithMaxLog(u.MaxLog),
		rediswindow.WithMaxQueued(u.MaxQueued)), client}
	if u.Lazy {
		return o, nil
	}
	if err := o.Ping(ctx); err != nil {
		_ = o.Close()
		password, _ := u.User.Password()
		return nil, redisclient.ConnectError("goredis", err, password, u.User.Username())
	}
	return o, nil
}

// clientOf returns the client of a URL: that of Sentinel if there is a parameter master_set, or else that of a
// cluster if there is a parameter addr. User and password are those of the primary, as with rueidis.
func clientOf(u *redisclient.URL) (redis.UniversalClient, error) {
	if u.Query.Has("master_set") {
		u.Query.Set("master_name", u.Query.Get("master_set"))
		u.Query.Del("master_set")
		o, err := redis.ParseFailoverURL(u.String(schemes[u.Scheme]))
		if err != nil {
			return nil, err
		}
		o.Username, o.SentinelUsername = o.SentinelUsername, ""
		o.Password, o.SentinelPassword = o.SentinelPassword, ""
		o.ContextTimeoutEnabled = true
		return redis.NewFailoverClient(o), nil
	}
	if u.Query.Has("addr") {
		o, err := redis.ParseClusterURL(u.String(schemes[u.Scheme]))
		if err != nil {
			return nil, err
		}
		o.ClusterStateReloadInterval = reloadInterval
		o.ContextTimeoutEnabled = true
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(u.String(schemes[u.Scheme]))
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	return redis.NewClient(o), nil
}
