package throttr

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ParseURL returns the Config that a URL describes:
//
//	throttr://host:port,host:port?max_conns=4
//	throttrs://host:port                        (TLS)
//	unix:///path/to/socket?stall_timeout=2s
//
// A host without a port gets 9000. Parameters are the fields of [Config]:
//
//   - numbers: max_conns, max_in_flight, max_queued, max_response, max_retries
//   - durations, such as 500ms: connect_timeout, stall_timeout, max_conn_age, max_conn_idle,
//     health_interval, min_backoff, max_backoff
//   - lazy: true or false
//   - parking: automatic, never or always
//
// Anything else is an error that matches [ErrConfig].
func ParseURL(s string) (Config, error) {
	var cfg Config
	var err error
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case !ok, strings.ContainsAny(scheme, ":/?#@"):
		return cfg, fmt.Errorf("%w: URL has no scheme, want throttr://, throttrs:// or unix://", ErrConfig)
	case strings.Contains(rest, "@") && !(scheme == "unix" && strings.HasPrefix(rest, "/")):
		return cfg, fmt.Errorf("%w: URL has credentials, which Throttr does not know", ErrConfig) // wherever they end
	}
	rest, query, _ := strings.Cut(rest, "?")
	switch scheme {
	case "throttrs":
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		cfg.Servers, err = splitHosts(rest)
	case "throttr":
		cfg.Servers, err = splitHosts(rest)
	case "unix":
		cfg.Servers = []string{"unix://" + rest}
	default:
		return cfg, fmt.Errorf("%w: URL scheme is %q, want throttr, throttrs or unix", ErrConfig, scheme)
	}
	if err == nil {
		err = cfg.setParameters(query)
	}
	if err != nil {
		return Config{}, err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// isLazy reports whether a URL of any scheme has the parameter lazy=true. Rest is what follows the scheme.
func isLazy(rest string) bool {
	_, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query)
	lazy, _ := strconv.ParseBool(values.Get("lazy"))
	return lazy
}

// splitHosts splits a comma-separated list of hosts and gives each a port. It refuses everything
// else that a URL can hold. The errors do not repeat the URL, which may have a password.
func splitHosts(list string) ([]string, error) {
	list = strings.TrimSuffix(list, "/")
	if strings.ContainsAny(list, "/#") {
		return nil, fmt.Errorf("%w: URL has a path or a fragment after its hosts", ErrConfig)
	}
	hosts := strings.Split(list, ",")
	for i, h := range hosts {
		if strings.HasPrefix(h, "[") {
			h = strings.Replace(h, "%25", "%", 1) // the zone of an IPv6 address in a URL (RFC 6874)
		}
		if bare := !strings.Contains(h, ":") || strings.HasSuffix(h, "]"); bare && h != "" {
			h += ":9000"
		}
		hosts[i] = h
	}
	return hosts, nil
}

// setParameters sets the fields that the query of a URL names.
func (c *Config) setParameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: URL query: %w", ErrConfig, err)
	}
	numbers := map[string]*int{
		"max_conns": &c.MaxConns, "max_in_flight": &c.MaxInFlight,
		"max_queued": &c.MaxQueued, "max_response": &c.MaxResponse, "max_retries": &c.MaxRetries,
	}
	durations := map[string]*time.Duration{
		"connect_timeout": &c.ConnectTimeout, "stall_timeout": &c.StallTimeout, "max_conn_age": &c.MaxConnAge,
		"max_conn_idle": &c.MaxConnIdle, "health_interval": &c.HealthInterval,
		"min_backoff": &c.MinBackoff, "max_backoff": &c.MaxBackoff,
	}
	for name, v := range values {
		if len(v) != 1 {
			return fmt.Errorf("%w: URL parameter %s is given %d times", ErrConfig, name, len(v))
		}
		switch {
		case numbers[name] != nil:
			*numbers[name], err = strconv.Atoi(v[0])
		case durations[name] != nil:
			*durations[name], err = time.ParseDuration(v[0])
		case name == "lazy":
			c.Lazy, err = strconv.ParseBool(v[0])
		case name == "parking":
			err = c.Parking.UnmarshalText([]byte(v[0]))
		default:
			return fmt.Errorf("%w: URL parameter %q is unknown", ErrConfig, name)
		}
		if err != nil {
			return fmt.Errorf("%w: URL parameter %s: %w", ErrConfig, name, err)
		}
	}
	return nil
}
