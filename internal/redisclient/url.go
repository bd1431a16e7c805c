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

// ErrMalformed is the error of a URL that can't be read. It says no more, as any part of such a URL may be a password.
var ErrMalformed = fmt.Errorf("%w: the URL is malformed, or a character of its user or password is not percent-encoded",
	window.ErrConfig)

// Parse reads a URL. The parameters prefix, max_log, max_queued, lazy and timeout are those of the backend; others
// must be among the given ones, for the client. Timeout is that of connecting and of a response: it becomes
// dial_timeout and write_timeout, as far as the URL does not have them. No error has a part of the user and password,
// which can be at odd places of a URL that is malformed: all that is before the last @ may be one.
func Parse(text string, others ...string) (*URL, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	parsed, err := url.Parse("redis://" + rest)
	at := strings.LastIndexByte(rest, '@')
	if err != nil || strings.ContainsAny(rest[:at+1], "/?#") || strings.Contains(parsed.Host, ",") {
		return nil, ErrMalformed
	}
	u := &URL{Scheme: scheme, User: parsed.User, Host: parsed.Host, Path: parsed.Path, Prefix: DefaultPrefix}
	if u.Query, err = url.ParseQuery(parsed.RawQuery); err != nil {
		return nil, ErrMalformed
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
			return fmt.Errorf("%w: a parameter of the URL is unknown; there are prefix, timeout, lazy, max_queued, max_log, %s",
				window.ErrConfig, strings.Join(others, ", "))
		}
		if err != nil || len(values) > 1 {
			return fmt.Errorf("%w: URL parameter %s is malformed", window.ErrConfig, name)
		}
		u.Query.Del(name)
	}
	for _, name := range []string{"dial_timeout", "write_timeout"} {
		if timeout > 0 && !u.Query.Has(name) {
			u.Query.Set(name, timeout.String())
		}
	}
	return nil
}
