package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

func TestParseURLReturnsTheConfig(t *testing.T) {
	for url, want := range map[string]throttr.Config{
		"throttr://h1:9001":                    {Servers: []string{"h1:9001"}},
		"throttr://h1/":                        {Servers: []string{"h1:9000"}},
		"throttr://h1:1?":                      {Servers: []string{"h1:1"}},
		"throttr://h1,h2:7,h3":                 {Servers: []string{"h1:9000", "h2:7", "h3:9000"}},
		"throttr://[::1]:7":                    {Servers: []string{"[::1]:7"}},
		"throttr://[fe80::1%eth0]:7,127.0.0.1": {Servers: []string{"[fe80::1%eth0]:7", "127.0.0.1:9000"}},
		"throttr://[fe80::1%25eth0]":           {Servers: []string{"[fe80::1%eth0]:9000"}},
		"throttr://:9000":                      {Servers: []string{":9000"}},
		"unix:///run/throttr.sock":             {Servers: []string{"unix:///run/throttr.sock"}},
		"unix:///run/throttr.sock?max_conns=1": {Servers: []string{"unix:///run/throttr.sock"}, MaxConns: 1},
		"throttr://h:1?parking=automatic":      {Servers: []string{"h:1"}},
		"throttr://h:1/?max_conns=4&max_in_flight=1023&max_queued=9&max_response=65536&max_retries=-1&lazy=true&parking=never" +
			"&connect_timeout=1%2E5s&stall_timeout=2s&max_conn_age=-1s&max_conn_idle=3m&health_interval=1m30s&min_backoff=4ms&max_backoff=5ms": {
			Servers: []string{"h:1"}, MaxConns: 4, MaxInFlight: 1023, MaxQueued: 9, MaxResponse: 65536, MaxRetries: -1, Lazy: true,
			Parking: throttr.ParkingNever, ConnectTimeout: 1500 * time.Millisecond, StallTimeout: 2 * time.Second, MaxConnAge: -time.Second,
			MaxConnIdle: 3 * time.Minute, HealthInterval: 90 * time.Second, MinBackoff: 4 * time.Millisecond, MaxBackoff: 5 * time.Millisecond,
		},
	} {
		got, err := throttr.ParseURL(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got, url)
	}
	tls, err := throttr.ParseURL("throttrs://h1,h2:443")
	require.NoError(t, err)
	require.NotNil(t, tls.TLS)
	require.Equal(t, []string{"h1:9000", "h2:443"}, tls.Servers)
}

func TestParseURLErrors(t *testing.T) {
	for url, text := range map[string]string{
		"":                                        "no scheme",
		"127.0.0.1:9000":                          "no scheme",
		"redis://h:1":                             `scheme is "redis"`,
		"throttr://h1,,h2":                        "Servers",
		"throttr://::1":                           "Servers",
		"throttr://h1:":                           "no port",
		"throttr://h1:1,h1:1":                     "given twice",
		"throttr://h1/db":                         "path",
		"throttr://h1:1#top":                      "fragment",
		"throttr://h:1?parking=Always":            "automatic, never or always",
		"throttr://user:secret@h:1":               "credentials",
		"throttr://h1:1,u:secret@h2:1":            "credentials",
		"throttr://h:1?MAX_CONNS=4":               `"MAX_CONNS" is unknown`,
		"throttr://h:1?max_conns=four":            "max_conns",
		"throttr://h:1?lazy=perhaps":              "lazy",
		"throttr://h:1?max_conns=-1":              "MaxConns is -1, must be 1 to 1024",
		"throttr://h:1?max_conns=1&max_conns=1":   "max_conns is given 2 times",
		"throttr://h:1?stall_timeout=5":           "stall_timeout",
		"throttr://h:1?max_conns=4;max_retries=1": "query",
		"throttr://h:1?max_conns=%zz":             "query",
	} {
		cfg, err := throttr.ParseURL(url)
		require.ErrorIs(t, err, throttr.ErrConfig, url)
		require.ErrorContains(t, err, text, url)
		require.Zero(t, cfg, url)
	}
}

// What is before the host of a URL may be a password, whatever is wrong with the URL.
func TestErrorsOfURLsHaveNoPartOfUserAndPassword(t *testing.T) {
	for _, userinfo := range []string{
		"zoe:s3cr%tpw", "zoe:s3cr/tpw", "zoe:s3cr#tpw", "zoe:s3cr?tpw", "zoe:s3cr?%tpw", "zoe:s3cr?tpw=1", "zoe:s3cr?lazy=tpw", "zoe:s3cr?lazy=1&lazy=tpw",
		"zoe:s3cr tpw", "zoe:s3cr,tpw", "zoe:s3cr\ntpw", "zoe:12?max_conns=tpw", "zoe:s3cr@tpw", "zoe:s3cr@tpw?s3cr", "zoe:s3cr://tpw", "zoe", "zoe:s3crtpw",
	} {
		for _, format := range []string{
			"throttr://%s@127.0.0.1:1", "throttr://%s@127.0.0.1:port", "throttr://%s@127.0.0.1?lazy=x", "throttrs://%s@[::1", "unix://%s@/nowhere",
			"unix://%s@/nowhere?lazy=x", "http://%s@127.0.0.1", "memory://%s@127.0.0.1", "throttr:%s@127.0.0.1", "%s@127.0.0.1", "throttr://%s@", "throttr://127.0.0.1:1,%s@127.0.0.1:2",
		} {
			url := fmt.Sprintf(format, userinfo)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			b, err := throttr.Open(ctx, url)
			cancel()
			if err == nil {
				b.Close()
			}
			require.Error(t, err, url)
			for _, part := range []string{"zoe", "s3cr", "tpw"} {
				require.NotContains(t, err.Error(), part, url)
			}
		}
	}
}

// errDialed is the error of Connect if the Config is valid.
var errDialed = errors.New("dialed")

// dialed returns the network and address that Connect dials first, and its error.
func dialed(t *testing.T, cfg throttr.Config) (where string, err error) {
	t.Helper()
	cfg.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		where = network + " " + address
		return nil, errDialed
	}
	_, err = throttr.Connect[uint16](t.Context(), cfg)
	require.Error(t, err)
	return where, err
}

// The bounds are inclusive, and without Servers the default one is dialed.
func TestValidConfigsDialTheDefaultServer(t *testing.T) {
	for _, cfg := range []throttr.Config{
		{}, {MaxConns: 1}, {MaxConns: 1024}, {MaxInFlight: 1}, {MaxInFlight: 1023}, {MaxQueued: 1}, {MaxQueued: 1 << 24}, {MaxResponse: 24 << 10}, {MaxResponse: 1 << 30},
		{MaxRetries: -5}, {MaxRetries: 100}, {ConnectTimeout: time.Millisecond}, {MaxConnAge: -1}, {MaxConnIdle: -1},
		{HealthInterval: 1}, {StallTimeout: time.Hour},
	} {
		where, err := dialed(t, cfg)
		require.ErrorIs(t, err, errDialed, "%+v", cfg)
		require.ErrorIs(t, err, throttr.ErrConnect)
		require.Equal(t, "tcp "+throttr.DefaultServer, where)
	}
}

func TestConfigErrorsNameTheFieldAndItsBound(t *testing.T) {
	for text, cfg := range map[string]throttr.Config{
		"MaxConns is -1, must be 1 to 1024":                              {MaxConns: -1},
		"MaxConns is 1025, must be 1 to 1024":                            {MaxConns: 1025},
		"MaxInFlight is 1024, must be 1 to 1023":                         {MaxInFlight: 1024},
		"MaxInFlight is -3, must be 1 to 1023":                           {MaxInFlight: -3},
		"MaxResponse is 24575, must be 24576 to 1073741824":              {MaxResponse: 24575},
		"MaxResponse is 1073741825, must be 24576 to 1073741824":         {MaxResponse: 1<<30 + 1},
		"MaxQueued is 16777217, must be 1 to 16777216":                   {MaxQueued: 1<<24 + 1},
		"MaxRetries is 101, must be at most 100":                         {MaxRetries: 101},
		"ConnectTimeout is -1ns, must be positive":                       {ConnectTimeout: -1},
		"StallTimeout is -1s, must be positive":                          {StallTimeout: -time.Second},
		"HealthInterval is -1ns, must be positive":                       {HealthInterval: -1},
		`Servers: "h" is neither host:port nor unix`:                     {Servers: []string{"h"}},
		"Servers: a URL is not an address: use the Config that ParseURL": {Servers: []string{"throttr://me:secret@h:1"}},
		`Servers: "a:1" is given twice`:                                  {Servers: []string{"a:1", "b:1", "a:1"}},
	} {
		_, err := dialed(t, cfg)
		require.ErrorIs(t, err, throttr.ErrConfig)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}
