package throttr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/outage"
	_ "github.com/throttr-go/throttr/memory" // memory://
	"github.com/throttr-go/throttr/window"
)

func init() {
	for _, scheme := range []string{"throttr", "throttrs", "unix"} {
		window.Register(scheme, func(ctx context.Context, url string) (window.BackendCloser, error) {
			cfg, err := ParseURL(url)
			if err != nil {
				return nil, err
			}
			return openServers(ctx, cfg, nil)
		})
	}
}

// OpenBackend is a [Backend] that was opened by a URL. Its methods are also Close, which ends it and its
// connections; Ping, which asks every store whether it is there; and Stats.
type OpenBackend struct{ window.BackendCloser }

// Part returns the server, or the node of a cluster, that keeps a key, if there are several. A [RateLimit] has a
// circuit breaker for each.
func (b *OpenBackend) Part(key string) string { return outage.PartOf(b.BackendCloser, key) }

// Open opens the backend of a URL. Close it at the end.
//
//	memory://                                            in this process
//	throttr://10.0.0.1,10.0.0.2:9001?max_conns=8         Throttr servers, see ParseURL
//	throttrs://…  unix:///run/throttr.sock               the same, with TLS or on a Unix socket
//	redis://:password@10.0.0.1:6379/0?prefix=app:        Redis, with package redisbackend
//	postgres://app:password@10.0.0.1/app?table=limits    PostgreSQL, with package postgresbackend
//
// Packages other than memory must be imported, such as
//
//	import _ "github.com/throttr-go/throttr/redisbackend"
//
// With the parameter lazy=true, every scheme opens within half a second although the store is away: calls fail with
// [ErrUnavailable], so that the policy or the fallback of a [RateLimit] decides, until it responds. If a store is not
// there by then, [slog.Default] gets a line at level WARN.
//
// Errors match [ErrConfig] or [ErrUnavailable], and never contain the URL's password. Open panics if ctx is
// nil.
func Open(ctx context.Context, url string) (*OpenBackend, error) {
	if ctx == nil {
		panic("throttr: Open: ctx is nil")
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, fmt.Errorf("%w: URL has no scheme, such as memory://, throttr:// or redis://", ErrConfig)
	}
	open := window.Driver(scheme)
	if open == nil {
		return nil, unknownScheme(scheme)
	}
	b, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	if isLazy(rest) {
		reportStart(b, slog.Default())
	}
	return &OpenBackend{b}, nil
}

// reportStart logs, once the attempts to reach the stores of a lazy backend have had the time they need, that one is
// not there.
func reportStart(b window.BackendCloser, l *slog.Logger) {
	time.AfterFunc(startWait, func() {
		ctx, cancel := context.WithTimeout(context.Background(), startWait)
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				outage.LogPanic(l, b, cause)
			}
		}()
		if err := b.Ping(ctx); err != nil && !errors.Is(err, ErrClosed) {
			l.Warn("throttr: the store can't be reached yet", "store", outage.Stores(b), "error", lineText(err))
		}
	})
}

// unknownScheme returns the error of a scheme without a driver. It names the import of those that this
// module has.
func unknownScheme(scheme string) error {
	const ofSchemes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."
	hint := "throttr, throttrs, unix and memory are always known, others if their package is imported"
	switch {
	case strings.Trim(scheme, ofSchemes) != "": // it may be a password
		return fmt.Errorf("%w: what precedes :// in the URL is no scheme", ErrConfig)
	case strings.HasPrefix(scheme, "redis"):
		hint = `forgotten import? _ "github.com/throttr-go/throttr/redisbackend"`
	case strings.HasPrefix(scheme, "postgres"):
		hint = `forgotten import? _ "github.com/throttr-go/throttr/postgresbackend"`
	}
	return fmt.Errorf("%w: URL scheme %.32q is unknown (%s)", ErrConfig, scheme, hint)
}

// OpenServers opens a backend on Throttr servers of any value size, which it learns from the servers. All
// must have the same. Errors match [ErrConfig] or [ErrConnect]. It panics if ctx or an option is nil.
func OpenServers(ctx context.Context, cfg Config, opts ...BackendOption) (*OpenBackend, error) {
	if ctx == nil {
		panic("throttr: OpenServers: ctx is nil")
	}
	b, err := openServers(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	if cfg.Lazy {
		reportStart(b, cmp.Or(cfg.Logger, slog.Default()))
	}
	return &OpenBackend{b}, nil
}

func openServers(ctx context.Context, cfg Config, opts []BackendOption) (window.BackendCloser, error) {
	o := backendOptionsOf("OpenServers", opts)
	client, err := connect(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	b := client.newBackend(o)
	b.owner = true
	return b, nil
}
