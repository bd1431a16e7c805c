package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

func TestListContainsAllRecords(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size, mockserver.WithVirtualClock())
		require.Empty(t, s.yes("list"))
		require.Empty(t, s.yes("list --records"))
		s.yes("insert --ttl 1h jobs 5")
		s.yes("set --ttl 1m greeting hello")
		status, _, _ := s.run("", "set", "--ttl", "2m", "a b", "x")
		require.Zero(t, status)
		heading, rows, _ := strings.Cut(s.yes("list --records"), "\n")
		require.Equal(t, "kind     bytes  expires               key", heading)
		require.ElementsMatch(t, []string{
			fmt.Sprintf("counter      %d  2030-01-01T01:00:00Z  jobs", size),
			"buffer       5  2030-01-01T00:01:00Z  greeting",
			`buffer       1  2030-01-01T00:02:00Z  "a b"`,
		}, strings.Split(strings.TrimSuffix(rows, "\n"), "\n"))
		list := objects(t, s.yes("list --records --json"))
		require.Len(t, list, 3)
		for _, o := range list {
			require.Equal(t, s.servers, o["server"])
			require.Contains(t, o["expires_at"], "2030-01-01T0")
			require.Contains(t, []any{"counter", "buffer"}, o["kind"])
			require.NotEmpty(t, o["unit"])
			require.NotZero(t, o["bytes_used"])
		}
		out := s.yes("list")
		require.Regexp(t, `(?m)^kind +count  scale +ends in  key$`, out)
		require.Regexp(t, `(?m)^counter +5 +- +59m\S* +jobs$`, out)
		require.Regexp(t, `(?m)^buffer +5 B +- +5\d\S+ +greeting$`, out)
		require.Equal(t, 4, strings.Count(out, "\n"))
		for _, args := range []string{"list j", "list --records j"} {
			out := s.yes(args)
			require.Contains(t, out, "jobs")
			require.Equal(t, 2, strings.Count(out, "\n"))
		}
		require.Empty(t, s.yes("list nobody"))
	})
}

func TestListShowsOpenWindows(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size)
		long := strings.Repeat("x", 100)
		s.yes("hit --scale 1m --limit 9 -n 2 user:42")
		s.yes("hit --scale 20s --limit 9 -n 3 user:43")
		s.yes("hit --scale 1m --limit 9 " + long)
		s.yes("insert --ttl 1h user:jobs 7")
		out := s.yes("list user:")
		require.Regexp(t, `(?m)^window +2 +1m +(5\d\S*s|1m)  user:42$`, out)
		require.Regexp(t, `(?m)^window +3 +20s +(1\d\S*|20)s  user:43$`, out)
		require.Regexp(t, `(?m)^counter +7 +- +59m\S* +user:jobs$`, out)
		require.Equal(t, 4, strings.Count(out, "\n"))
		require.Regexp(t, `(?m)^window +1 +1m +(5\d\S*s|1m)  #\S{43}$`, s.yes("list #"))
		for _, o := range objects(t, s.yes("list --json user:4")) {
			require.Equal(t, "window", o["kind"])
			require.NotZero(t, o["scale_seconds"])
			require.Positive(t, o["ends_in_seconds"])
			require.Contains(t, []any{2.0, 3.0}, o["count"])
			require.Equal(t, s.servers, o["server"])
		}
		require.Contains(t, s.yes("list --records"), ":1m0s:user:42")
	})
}
