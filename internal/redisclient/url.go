package redisclient

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

// URL is a URL of which the parameters of the backend have been read.
type URL struct {
	Scheme string
	User   *url.Userinfo
	Host   string     // with port
	Path   string     // the database, or the path of a socket
	Query  url.Values // the parameters of the client
	Lazy   bool

	Prefix    string
	MaxLog    uint64 // 0: the default of the backend, as with MaxQueued
	MaxQueued int
}

// DefaultPrefix is the prefix of a URL that has none.
const DefaultPrefix = "throttr:"

// String formats the URL for a client, with another scheme.
func (u *URL) String(scheme string) string {
	return (&url.URL{Scheme: scheme, User: u.User, Host: u.Host, Path: u.Path, RawQuery: u.Query.Encode()}).String()
}

// Malformed returns the error of a client for the URL. Without an @, what seems to be the port, and what follows,
// may be a password: then the error is another one.
func (u *URL) Malformed(err error) error {
	if u.mayHidePassword() {
		return Config("the host or port of the URL, or what follows, is malformed")
	}
	return Config("%w", err)
}

func (u *URL) mayHidePassword() bool { return u.User == nil && strings.Contains(u.Host, ":") }

// Config returns an error that matches [window.ErrConfig].
func Config(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{window.ErrConfig}, args...)...)
}

// Parse reads a URL. The parameters prefix, max_log, max_queued, lazy and timeout are those of the backend; others
// must be among the given ones, for the client. Timeout is that of connecting and of a response: it becomes
// dial_timeout, read_timeout and write_timeout, as far as the client has them and the URL does not. No error has a
// part of the user and password, which can be at odd places of a URL that is malformed: all that is before the last @
// may be one.
func Parse(text string, others ...string) (*URL, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") {
		return nil, Config("URL has no scheme, such as redis://")
	}
	at := strings.LastIndexByte(rest, '@')
	if strings.ContainsAny(rest[:at+1], "/?#") {
		return nil, Config("a / ? # of the user or password of the URL, or an @ after its host, is not percent-encoded")
	}
	if bare, err := url.Parse("redis://" + rest[at+1:]); err != nil || strings.Contains(bare.Host, ",") {
		return nil, Config("the host or port of the URL, or what follows, is malformed") // the port may be a password without an @
	}
	parsed, err := url.Parse("redis://" + rest)
	if err != nil {
		return nil, Config("the user or password of the URL has a character that is not percent-encoded")
	}
	u := &URL{Scheme: scheme, User: parsed.User, Host: parsed.Host, Path: parsed.Path, Prefix: DefaultPrefix}
	if u.Query, err = url.ParseQuery(parsed.RawQuery); err != nil {
		return nil, Config("the query of the URL is malformed")
	}
	return u, u.parameters(others)
}

// parameters reads and removes the parameters of the backend.
func (u *URL) parameters(others []string) error {
	var timeout time.Duration
	for name, values := range u.Query {
		if slices.Contains(others, name) {
			continue
		}
		if len(values) != 1 {
			return Config("URL parameter %.64q is given %d times", name, len(values))
		}
		v, err := values[0], error(nil)
		switch name {
		case "prefix":
			u.Prefix = v
		case "max_log":
			u.MaxLog, err = strconv.ParseUint(v, 10, 63)
		case "max_queued":
			var n uint64
			n, err = strconv.ParseUint(v, 10, 31)
			u.MaxQueued = int(n)
		case "lazy":
			u.Lazy, err = strconv.ParseBool(v)
		case "timeout":
			timeout, err = time.ParseDuration(v)
			if err == nil && timeout < 0 {
				err = strconv.ErrRange
			}
		default:
			if u.mayHidePassword() {
				return Config("a parameter of the URL is unknown; those of backends are prefix, max_log, max_queued, lazy and timeout")
			}
			return Config("URL parameter %.64q is unknown", name)
		}
		if err != nil {
			return Config("URL parameter %s is malformed", name)
		}
		u.Query.Del(name)
	}
	for _, name := range []string{"dial_timeout", "read_timeout", "write_timeout"} {
		if timeout > 0 && slices.Contains(others, name) && !u.Query.Has(name) {
			u.Query.Set(name, timeout.String())
		}
	}
	return nil
}
