package fuzz_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

// FuzzParseURL parses URLs. An error matches ErrConfig and comes without a Config. A Config
// is within the bounds of each field, and is the same when it is parsed again from its URL.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"", "throttr://", "throttr://h1,h2:7,[::1]", "throttrs://[fe80::1%25eth0]:7/?max_conns=4", "unix:///run/throttr.sock",
		"unix://?max_conns=1", "throttr://user:secret@h:1", "throttr://h1/db#top", "throttr://h,h:9000",
		"throttr://h?max_conns=4&max_in_flight=1023&max_waiting=9&max_retries=-1&max_answer=16384",
		"throttr://h?connect_timeout=1%2E5s&stall_timeout=2s&max_conn_age=-1s&max_conn_idle=3m&health_interval=1m30s",
		"throttr://h?retry_pause=1ms&max_retry_pause=9223372036854775807ns", "throttr://h?max_conns=1&max_conns=1", "throttr://h?%zz;",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cfg, err := throttr.ParseURL(s)
		if err != nil {
			require.ErrorIs(t, err, throttr.ErrConfig)
			require.Zero(t, cfg)
			return
		}
		require.NotEmpty(t, cfg.Servers)
		require.True(t, 0 <= cfg.MaxConns && cfg.MaxConns <= 1<<10)
		require.True(t, 0 <= cfg.MaxInFlight && cfg.MaxInFlight <= 1023)
		require.True(t, 0 <= cfg.MaxQueued && cfg.MaxQueued <= 1<<24)
		require.True(t, 0 <= cfg.MaxResponse && cfg.MaxResponse <= 1<<30)
		require.LessOrEqual(t, cfg.MaxRetries, 100)
		for _, d := range []time.Duration{cfg.ConnectTimeout, cfg.StallTimeout, cfg.HealthInterval, cfg.MinBackoff, cfg.MaxBackoff} {
			require.GreaterOrEqual(t, d, time.Duration(0))
		}
		again, err := throttr.ParseURL(format(cfg))
		require.NoError(t, err)
		require.Equal(t, cfg, again)
		if !strings.HasPrefix(s, "unix:") {
			require.NotContains(t, strings.Join(cfg.Servers, ""), "@", "a name has no credentials")
		}
	})
}

// format returns a URL of a Config that ParseURL has returned.
func format(cfg throttr.Config) string {
	q := url.Values{}
	for name, n := range map[string]int{
		"max_conns": cfg.MaxConns, "max_in_flight": cfg.MaxInFlight, "max_queued": cfg.MaxQueued,
		"max_response": cfg.MaxResponse, "max_retries": cfg.MaxRetries,
	} {
		q.Set(name, strconv.Itoa(n))
	}
	for name, d := range map[string]time.Duration{
		"connect_timeout": cfg.ConnectTimeout, "stall_timeout": cfg.StallTimeout, "max_conn_age": cfg.MaxConnAge,
		"max_conn_idle": cfg.MaxConnIdle, "health_interval": cfg.HealthInterval,
		"min_backoff": cfg.MinBackoff, "max_backoff": cfg.MaxBackoff,
	} {
		q.Set(name, d.String())
	}
	hosts := strings.Join(cfg.Servers, ",")
	switch {
	case cfg.TLS != nil:
		return "throttrs://" + hosts + "?" + q.Encode()
	case strings.HasPrefix(hosts, "unix://"):
		return hosts + "?" + q.Encode()
	}
	return "throttr://" + hosts + "?" + q.Encode()
}
