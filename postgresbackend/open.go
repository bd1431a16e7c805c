package postgresbackend

import (
	"context"
	"fmt"
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

// settings are those that pgx sends to the server and that make sense here, or are of its environment.
var settings = []string{"application_name", "options", "search_path", "timezone"}

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
	_, rest, _ := strings.Cut(text, "://")
	parsed.config, err = pgxpool.ParseConfig(text)
	if err != nil || strings.ContainsAny(rest[:strings.LastIndexByte(rest, '@')+1], "/?#") {
		return parsed, configError("the URL is malformed, or a character of its user or password is not percent-encoded")
	}
	if !strings.Contains(text, "pool_max_conns=") {
		parsed.config.MaxConns = defaultConns
	}
	if parsed.config.ConnConfig.ConnectTimeout == 0 {
		parsed.config.ConnConfig.ConnectTimeout = timeout
	}
	unknown := parsed.config.ConnConfig.RuntimeParams // to pgx
	for name, value := range unknown {
		if slices.Contains(settings, name) {
			continue
		}
		if err := parsed.set(name, value); err != nil {
			return parsed, err
		}
		delete(unknown, name)
	}
	return parsed, nil
}

// set reads a parameter that is this package's own.
func (p *parsedURL) set(name, value string) (err error) {
	switch name {
	case "lazy":
		p.lazy, err = strconv.ParseBool(value)
	case "table":
		if !isTable(value) {
			return configError("URL parameter table is no name of 1 to 63 bytes")
		}
		p.opts = append(p.opts, WithTable(value))
	case "durability":
		d := Durability(value)
		if d != Async && d != Full && d != Unlogged {
			return configError("URL parameter durability is malformed")
		}
		p.opts = append(p.opts, WithDurability(d))
	case "max_queued":
		var n uint64
		n, err = strconv.ParseUint(value, 10, 31)
		p.opts = append(p.opts, WithMaxQueued(int(n)))
	default:
		return configError("URL parameter %.64q is unknown", name)
	}
	if err != nil {
		return configError("URL parameter %s is malformed", name)
	}
	return nil
}
