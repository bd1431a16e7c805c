package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// serversTake says that Throttr servers can take.
var _, serversTake = any((*throttr.ServerBackend[uint16])(nil)).(window.Taker)

func TestTakesOfServersThatCannotTake(t *testing.T) {
	if serversTake {
		t.Skip("servers can take")
	}
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size)
		s.fails("take -scale 1m -limit 10 a b", "the backend can't take")
		s.fails("wait -scale 1m -limit 10 a", "the backend can't take")
	})
}

// memoryClient is a client that can only limit, in memory.
type memoryClient struct {
	client
	limits *throttr.RateLimit
}

func (c memoryClient) limiter() *throttr.RateLimit { return c.limits }

func TestTakesAreGrantedUpToTheLimit(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	c := memoryClient{limits: throttr.NewRateLimit(backend)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	scale := time.Minute
	call := func(wait bool, limit, n uint64, keys ...string) (bool, string) {
		var out bytes.Buffer
		o := newOutput(&out, false)
		arguments := takeArguments{scale: &scale, limit: limit, n: n}
		f := arguments.take
		if wait {
			f = arguments.wait
		}
		ok, err := f(ctx, o, c, keys)
		require.NoError(t, err)
		require.NoError(t, o.flush())
		return ok, out.String()
	}
	ok, out := call(false, 5, 3, "a", "b")
	require.True(t, ok)
	require.Regexp(t, `(?m)^a +granted +3 +5 +2 `, out)
	ok, out = call(false, 5, 3, "new", "a")
	require.False(t, ok)
	require.Regexp(t, `(?m)^new +not taken +0 +5 +5 +-$`, out)
	require.Regexp(t, `(?m)^a +refused +3 +5 +2 `, out)
	ok, out = call(true, 5, 2, "a", "b")
	require.True(t, ok)
	require.Regexp(t, `(?m)^b +granted +5 +5 +0 `, out)
	ok, out = call(true, 5, 1, "new", "a", "never")
	require.False(t, ok)
	require.Regexp(t, `(?m)^new +granted +1 +5 +4 `, out)
	require.Regexp(t, `(?m)^a +refused `, out)
	require.NotContains(t, out, "never")
}
