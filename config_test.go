package throttr_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
)

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
