package postgresbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/backoff"
	"github.com/throttr-go/throttr/window"
)

func init() {
	for _, scheme := range []string{"postgres", "postgresql"} {
		window.Register(scheme, open)
	}
}

const (
	// defaultConns is how many connections a process has by default: one for each lane.
	defaultConns = 2
	// closeTimeout is how long Close waits for connections.
	closeTimeout = 3 * time.Second
	// The pauses between attempts to make the table of a backend that was opened lazily.
	shortestPause = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// parameters are the URL parameters that pgx reads, and those that it sends to the server that make sense here.
var parameters = []string{
	"application_name", "channel_binding", "connect_timeout", "dbname", "default_query_exec_mode", "description_cache_capacity", "host",
	"krbspn", "krbsrvname", "max_protocol_version", "min_protocol_version", "options", "passfile", "password", "pool_health_check_period",
	"pool_max_conn_idle_time", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter", "pool_max_conns", "pool_min_conns", "pool_min_idle_conns",
	"port", "require_auth", "search_path", "service", "servicefile", "sslcert", "sslcertmode", "sslkey", "sslmode", "sslnegotiation", "sslpassword",
	"sslrootcert", "sslsni", "statement_cache_capacity", "target_session_attrs", "user",
}

// opened is a backend with a pool of its own.
type opened struct{ *Backend }

// Close ends the backend and its connections. It returns after [closeTimeout] at the latest. Further calls fail with an error
// that matches [window.ErrClosed].
func (o *opened) Close() error {
	err := o.Backend.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		o.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
	return err
}

// open opens the backend of a URL. Unless it is lazy, it makes the table if that is missing.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	config, opts, lazy, err := parseURL(text)
	if err != nil {
		return nil, &api.CallError{Package: "postgresbackend", Err: err}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return nil, &api.CallError{Package: "postgresbackend", Err: configError("%w", err)}
	}
	o := &opened{New(pool, opts...)}
	if lazy {
		go o.prepareUntilDone()
		return o, nil
	}
	if err := o.prepare(ctx); err != nil {
		_ = o.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &api.CallError{Package: "postgresbackend", Call: "open", Err: err}
	}
	return o, nil
}

// prepareUntilDone makes the table if it is missing, as soon as the server responds.
func (o *opened) prepareUntilDone() {
	pause := backoff.New(shortestPause, longestPause)
	for o.prepare(o.life) != nil && pause.Wait(o.life, nil) == nil {
	}
}

// configError returns an error that matches [window.ErrConfig].
func configError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{window.ErrConfig}, args...)...)
}

// parseURL reads a URL. No error has a part of its password, which can be at odd places of a URL that is malformed.
func parseURL(text string) (config *pgxpool.Config, opts []Option, lazy bool, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil, false, configError("the URL is malformed, or a character of its user or password is not percent-encoded")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, false, configError("the query of the URL is malformed")
	}
	for name, values := range query {
		if len(values) != 1 {
			return nil, nil, false, configError("URL parameter %.64q is given %d times", name, len(values))
		}
		v, own := values[0], true
		var err error
		switch {
		case name == "lazy":
			lazy, err = strconv.ParseBool(v)
		case name == "table":
			opts = append(opts, WithTable(v))
		case name == "durability" && (v == string(Async) || v == string(Full) || v == string(Unlogged)):
			opts = append(opts, WithDurability(Durability(v)))
		case name == "max_queued":
			var n uint64
			if n, err = strconv.ParseUint(v, 10, 31); err == nil {
				opts = append(opts, WithMaxQueued(int(n)))
			}
		case name == "durability":
			err = strconv.ErrSyntax
		case !slices.Contains(parameters, name):
			return nil, nil, false, configError("URL parameter %.64q is unknown", name)
		default:
			own = false
		}
		if err != nil {
			return nil, nil, false, configError("URL parameter %s is malformed", name)
		}
		if own {
			query.Del(name)
		}
	}
	maxConns := query.Has("pool_max_conns")
	u.RawQuery = query.Encode()
	if config, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, nil, false, malformed(u, query, err)
	}
	if !maxConns {
		config.MaxConns = defaultConns
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = timeout
	}
	return config, opts, lazy, nil
}

// malformed returns the error of pgx for a URL, unless it may have a part of a password.
func malformed(u *url.URL, query url.Values, err error) error {
	text := oneLine(cmp.Or(errors.Unwrap(err), err).Error()) // without the URL, which pgx precedes
	password, _ := u.User.Password()
	for _, secret := range []string{password, query.Get("password"), query.Get("sslpassword")} {
		if secret != "" && strings.Contains(text, secret) {
			return configError("the URL is malformed")
		}
	}
	return configError("the URL is malformed: %s", text)
}
