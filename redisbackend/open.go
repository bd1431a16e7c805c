package redisbackend

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

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/rediswindow"
	"github.com/throttr-go/throttr/window"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix"} {
		window.Register(scheme, open)
	}
}

// opened is a backend with clients of its own.
type opened struct {
	*rediswindow.Backend
	client *adapter
	stop   context.CancelFunc // ends its ctx
}

// Close ends the backend and its client. Further calls fail with an error that matches [window.ErrClosed]. It returns
// after [api.CloseTimeout] at the latest.
func (o *opened) Close() error {
	err := o.Backend.Close()
	o.stop()
	if last := o.client.state.Swap(&state{err: window.ErrClosed}); last.client != nil {
		api.Close(last.client.Close)
	}
	return err
}

// startWait is how long open waits for the first attempt to connect if it is lazy, so that a program whose store is
// there has its first call decided by it.
const startWait = 500 * time.Millisecond

// open opens the backend of a URL.
func open(ctx context.Context, text string) (window.BackendCloser, error) {
	s, err := parse(text)
	if err != nil {
		return nil, &api.CallError{Package: "redisbackend", Err: err}
	}
	a := &adapter{option: s.client, name: s.client.InitAddress[0]}
	a.state.Store(&state{err: a.connectError(errors.New("no attempt has ended yet"))})
	o := &opened{client: a}
	a.ctx, o.stop = context.WithCancel(context.Background())
	o.Backend = rediswindow.New(a, s.backend...)
	if s.lazy {
		begun, cancel := context.WithTimeout(ctx, startWait)
		defer cancel()
		_ = api.Await(begun, func() {
			if a.attempt() != nil {
				go a.connect()
			}
		})
		return o, nil
	}
	if err = api.Await(ctx, func() { _ = a.attempt() }); err != nil {
		err = &api.CallError{Package: "redisbackend", Call: "connect", Err: err}
	} else if _, err = a.current(); err == nil {
		err = o.Ping(ctx)
	}
	if err != nil {
		_ = o.Close()
		return nil, err
	}
	return o, nil
}

// parameters are the URL parameters that rueidis.ParseURL reads.
var parameters = []string{"addr", "db", "dial_timeout", "write_timeout", "protocol", "client_name", "master_set",
	"skip_verify"}

// examples say how to write parameters that have units.
var examples = map[string]string{"timeout": ": write 250ms, or 1s"}

// settings are what a URL says.
type settings struct {
	client  rueidis.ClientOption
	backend []rediswindow.Option
	lazy    bool
	timeout time.Duration // of connecting and of a response, as far as they have none of their own
}

// idleTime is how long a connection is kept that nothing uses. A server or proxy that ends it first fails the next call
// that does.
var idleTime = 20 * time.Second

// errMalformed is the error of a URL that can't be read. It says no more, as any part of such a URL may be a password.
var errMalformed = fmt.Errorf("%w: the URL is malformed, or a character of its user or password is not percent-encoded",
	window.ErrConfig)

// parse reads a URL. No error has a part of the user and password, which can be at odd places of a URL that is
// malformed: all that is before the last @ may be one. Without an @, there is none.
func parse(text string) (s settings, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	u, err := url.Parse("redis://" + rest)
	at := strings.LastIndexByte(rest, '@')
	if err != nil || strings.ContainsAny(rest[:at+1], "/?#") || strings.Contains(u.Host, ",") {
		return s, errMalformed
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return s, errMalformed
	}
	if err := s.read(query); err != nil {
		return s, err
	}
	u.Scheme = strings.TrimPrefix(scheme, "redis+")
	u.RawQuery = query.Encode()
	if s.client, err = rueidis.ParseURL(u.String()); err != nil {
		return s, errMalformed
	}
	s.client.Dialer.Timeout = cmp.Or(s.client.Dialer.Timeout, s.timeout)
	s.client.ConnWriteTimeout = cmp.Or(s.client.ConnWriteTimeout, s.timeout)
	s.client.ConnLifetime = idleTime
	s.client.DisableAutoPipelining = true // calls share requests already; a connection for each serves a lone caller sooner
	s.client.DisableCache = true          // nothing is cached here, and not every server, proxy or user may track keys
	return s, nil
}

// read reads and removes the parameters of the backend.
func (s *settings) read(query url.Values) error {
	for name, values := range query {
		if slices.Contains(parameters, name) {
			continue
		}
		var n uint64
		var err error
		v := values[0]
		switch name {
		case "prefix":
			s.backend = append(s.backend, rediswindow.WithPrefix(v))
		case "max_log":
			n, err = strconv.ParseUint(v, 10, 63)
			s.backend = append(s.backend, rediswindow.WithMaxLog(n))
		case "max_queued":
			n, err = strconv.ParseUint(v, 10, 31)
			s.backend = append(s.backend, rediswindow.WithMaxQueued(int(n)))
		case "lazy":
			s.lazy, err = strconv.ParseBool(v)
		case "timeout":
			s.timeout, err = time.ParseDuration(v)
		default:
			return fmt.Errorf("%w: URL parameter %.64q is unknown; there are prefix, timeout, lazy, max_queued, max_log, %s",
				window.ErrConfig, name, strings.Join(parameters, ", "))
		}
		if err != nil || len(values) > 1 || s.timeout < 0 {
			return fmt.Errorf("%w: URL parameter %s is malformed%s", window.ErrConfig, name, examples[name])
		}
		query.Del(name)
	}
	return nil
}
