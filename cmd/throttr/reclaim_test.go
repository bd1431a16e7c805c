package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/codec"
)

func TestReclaimUsesAllPlacesOfTheServers(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, srv := shellFor(t, size)
		require.Regexp(t, `^server +before +after\n\S+ +[\d.]+ µs +[\d.]+ µs\n$`, s.yes("reclaim --yes"))
		require.GreaterOrEqual(t, srv.Requests(codec.OpQuery), 42*1000)
		require.Zero(t, srv.Leaked(), "all responses are read")
		require.Empty(t, srv.Keys())
	})
}

func TestReclaimAsksFirst(t *testing.T) {
	s, srv := shellFor(t, 2)
	for _, answer := range []string{"", "n\n", "no\n", "\n"} {
		status, out, errs := s.run(answer, "reclaim")
		require.NotZero(t, status)
		require.Empty(t, out)
		require.Contains(t, errs, "Go on? [y/N]")
		require.Contains(t, errs, "not confirmed")
	}
	require.Zero(t, srv.Requests(codec.OpQuery))
	status, out, _ := s.run("Yes\n", "reclaim", "--json")
	require.Zero(t, status)
	require.Contains(t, out, `"service_time_before_seconds"`)
	require.Positive(t, srv.Requests(codec.OpQuery))
}
