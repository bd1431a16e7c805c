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
	"github.com/throttr-go/throttr/internal/outage"
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
	// The pauses between attempts to make the table of a backend that was opened lazily.
	shortestPause = 100 * time.Millisecond
	longestPause  = 5 * time.Second
)

// settings are those that pgx sends to the server and that make sense here.
var settings = []string{"application_name", "options", "search_path"}

// open opens the backend of a URL. Unless it is lazy, it makes the table if that is missing.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	parsed, err := parseURL(text)
	if err != nil {
		return nil, &api.CallError{Package: "postgresbackend", Err: err}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), parsed.config)
	if err != nil {
		return nil, &api.CallError{Package: "postgresbackend", Err: configError("%w", err)}
	}
	b := New(pool, parsed.opts...)
	b.owned = true
	if parsed.lazy {
		go b.prepareUntilDone()
		return b, nil
	}
	if err := b.prepare(ctx); err != nil {
		_ = b.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, &api.CallError{Package: "postgresbackend", Call: "open", Err: err}
	}
	return b, nil
}

// prepareUntilDone makes the table if it is missing, as soon as the server responds.
func (b *Backend) prepareUntilDone() {
	pause := outage.NewBackoff(shortestPause, longestPause)
	for b.prepare(b.life) != nil && pause.Wait(b.life, nil) == nil {
	}
}

// configError returns an error that matches [window.ErrConfig].
func configError(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{window.ErrConfig}, args...)...)
}

// parsedURL is what a URL says.
type parsedURL struct {
	config *pgxpool.Config
	opts   []Option
	lazy   bool
}

// parseURL reads a URL. No error has a part of its password, which can be at odd places of a URL that is malformed.
func parseURL(text string) (parsed parsedURL, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return parsed, configError("the URL is malformed, or a character of its user or password is not percent-encoded")
	}
	query, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, "+", "%2B")) // for pgx, a + is no space
	if err != nil {
		return parsed, configError("the query of the URL is malformed")
	}
	for name, values := range query {
		if len(values) != 1 {
			return parsed, configError("URL parameter %.64q is given %d times", name, len(values))
		}
		own, err := parsed.parameter(name, values[0])
		if err != nil {
			return parsed, configError("URL parameter %s is malformed", name)
		}
		if own {
			query.Del(name)
		}
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	parsed.config, err = pgxpool.ParseConfig(u.String())
	if err != nil {
		return parsed, malformed(u, query, err)
	}
	for name := range parsed.config.ConnConfig.RuntimeParams { // what pgx does not know
		if query.Has(name) && !slices.Contains(settings, name) {
			return parsed, configError("URL parameter %.64q is unknown", name)
		}
	}
	if !query.Has("pool_max_conns") {
		parsed.config.MaxConns = defaultConns
	}
	if parsed.config.ConnConfig.ConnectTimeout == 0 {
		parsed.config.ConnConfig.ConnectTimeout = timeout
	}
	return parsed, nil
}

// parameter reads a parameter that is this package's own.
func (p *parsedURL) parameter(name, value string) (own bool, err error) {
	switch name {
	case "lazy":
		p.lazy, err = strconv.ParseBool(value)
	case "table":
		if _, ok := tableParts(cmp.Or(value, DefaultTable)); !ok {
			return true, strconv.ErrSyntax
		}
		p.opts = append(p.opts, WithTable(value))
	case "durability":
		d := Durability(value)
		if d != Async && d != Full && d != Unlogged {
			return true, strconv.ErrSyntax
		}
		p.opts = append(p.opts, WithDurability(d))
	case "max_queued":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return true, err
		}
		p.opts = append(p.opts, WithMaxQueued(int(n)))
	default:
		return false, nil
	}
	return true, err
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
