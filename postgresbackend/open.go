package postgresbackend

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/outage"
	"github.com/throttr-go/throttr/window"
)

func init() {
	window.Register("postgres", open)
	window.Register("postgresql", open)
}

// defaultConns is how many connections a process has by default: one for each lane.
const defaultConns = 2

// open opens the backend of a URL. It makes the table if that is missing: if it is lazy, as soon as the server responds.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	parsed, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), parsed.config)
	if err != nil {
		return nil, configError("%w", err)
	}
	b := New(pool, func(o *options) { *o = parsed.options })
	b.owned = true
	if parsed.lazy {
		go func() { // until the table is there
			pause := outage.NewBackoff(100*time.Millisecond, 5*time.Second)
			for b.prepare(b.life) != nil && pause.Wait(b.life, nil) == nil {
			}
		}()
		return b, nil
	}
	if err := b.prepare(ctx); err != nil {
		_ = b.Close()
		return nil, &api.CallError{Package: "postgresbackend", Call: "open", Err: err}
	}
	return b, nil
}

// configError returns an error that matches [window.ErrConfig].
func configError(format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{window.ErrConfig}, args...)...)
	return &api.CallError{Package: "postgresbackend", Err: err}
}

// parsedURL is what a URL says.
type parsedURL struct {
	options
	config *pgxpool.Config
	lazy   bool
}

// parseURL reads a URL. No error has a part of its password, which can be at odd places of a URL that is malformed.
func parseURL(text string) (*parsedURL, error) {
	_, rest, _ := strings.Cut(text, "://")
	config, err := pgxpool.ParseConfig(text)
	if err != nil || strings.ContainsAny(rest[:strings.LastIndexByte(rest, '@')+1], "/?#") {
		return nil, configError("the URL is malformed, or a character of its user or password is not percent-encoded")
	}
	if !strings.Contains(text, "pool_max_conns=") {
		config.MaxConns = defaultConns
	}
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, timeout)
	parsed := &parsedURL{options: newOptions("", nil), config: config}
	for name, value := range config.ConnConfig.RuntimeParams { // which pgx does not know
		if err := parsed.set(name, value); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// set reads a parameter that pgx would send to the server.
func (p *parsedURL) set(name, value string) (err error) {
	ok := true
	switch name {
	case "application_name", "options", "search_path", "timezone": // they make sense here, or are of the environment
		return nil
	case "lazy":
		p.lazy, err = strconv.ParseBool(value)
	case "table":
		p.table, ok = quote(cmp.Or(value, DefaultTable))
	case "durability":
		p.durability = Durability(value)
		ok = p.durability.known()
	case "max_queued":
		p.maxQueued, err = strconv.Atoi(value)
		ok = p.maxQueued >= 0
	default:
		return configError("URL parameter %.64q is unknown: use table, durability, lazy, max_queued, or one of pgx", name)
	}
	if !ok || err != nil {
		return configError("URL parameter %s is malformed", name)
	}
	delete(p.config.ConnConfig.RuntimeParams, name)
	return nil
}
