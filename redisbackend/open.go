package redisbackend

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

// OpenBackend is a [Backend] with a client of its own, which Close closes.
type OpenBackend struct {
	*Backend
	client rueidis.Client
}

// Open connects to a Redis server, or a cluster, and returns a backend on it:
//
//	redis://user:password@127.0.0.1:6379/0
//	rediss://h1:6379?addr=h2:6379&addr=h3:6379     (TLS; a cluster)
//	unix:///run/redis.sock
//
// The URL is that of rueidis.ParseURL. In user and password, / ? # @ and % are percent-encoded, and so is an
// @ after the host. No error has a part of the user or password. For all other settings make a client, and use [New]. Open
// returns when ctx ends. It panics if an option is nil.
func Open(ctx context.Context, url string, opts ...Option) (*OpenBackend, error) {
	rediswindow.New(adapter{}, opts...) // panics before anything is opened
	parsed, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redisbackend: %w", err)
	}
	type result struct {
		client rueidis.Client
		err    error
	}
	made := make(chan result, 1)
	go func() {
		client, err := rueidis.NewClient(parsed)
		made <- result{client, err}
	}()
	select {
	case r := <-made:
		if r.err != nil {
			return nil, connectError(r.err, &parsed)
		}
		return &OpenBackend{New(r.client, opts...), r.client}, nil
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				r.client.Close()
			}
		}()
		return nil, fmt.Errorf("redisbackend: can't connect: %w", ctx.Err())
	}
}

// Close closes the client. Further calls fail with an error that matches [window.ErrClosed]. It
// always returns nil, and can be called more than once.
func (b *OpenBackend) Close() error {
	b.client.Close()
	return nil
}

// closedError returns an error that also matches [window.ErrClosed] if the client was closed.
func closedError(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("%w: %w", window.ErrClosed, err)
	}
	return err
}
