package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/testkit"
)

// Commands that need only a rate limit work with the URL of any backend.
func TestLimitsOfOtherBackends(t *testing.T) {
	s, _ := shellFor(t, 2)
	status, out, stderr := s.run("", strings.Split("--servers memory:// hit --scale 1m --limit 1 a a b", " ")...)
	require.Empty(t, stderr)
	require.Equal(t, statusNo, status)
	require.Regexp(t, `(?m)^a +allowed +1 .*\na +denied +2 .*\nb +allowed +1 `, out)
	for line, want := range map[string]int{
		"--servers memory:// take --scale 1m --limit 1 a b": 0, "--servers memory:// wait --scale 1m --limit 1 a b": 0,
		"--servers memory:// reset --scale 1m a": statusNo,
	} {
		status, _, stderr := s.run("", strings.Split(line, " ")...)
		require.Empty(t, stderr)
		require.Equal(t, want, status, line)
	}
	for _, lazy := range []string{"lazy=1", "lazy=T", "prefix=a&lazy=true"} { // a person waits, and wants to know
		s.fails("--servers redis://127.0.0.1:1?"+lazy+" hit --scale 1m --limit 1 a", "connect", "refused")
	}
	s.fails("--servers redis://127.0.0.1:1?lazy=maybe hit --scale 1m --limit 1 a", "lazy")
	s.fails("--servers redis://127.0.0.1:1 hit --scale 1m --limit 1 a", "127.0.0.1:1", "refused")
	s.fails("--servers redis://:secret@127.0.0.1:x take --scale 1m --limit 1 a", "URL")
	s.fails("--servers redis://127.0.0.1:1 list", "redis")
}

func TestHitOfNothingOnlyReads(t *testing.T) {
	s, srv := shellFor(t, 8)
	read := func(count string) {
		t.Helper()
		status, out, stderr := s.run("", strings.Split("hit --scale 5m --limit 3 -n 0 k", " ")...)
		require.Zero(t, status, stderr)
		require.Regexp(t, `(?m)^k +allowed +`+count, out)
	}
	read(`0 +3 +3 +-$`)
	require.Empty(t, testkit.Keys(srv))
	s.run("", strings.Split("hit --scale 5m --limit 3 -n 2 k", " ")...)
	read(`2 +3 +1 +[45]m`)
}

func TestFractionsOfADayAreTheSameWindow(t *testing.T) {
	s, _ := shellFor(t, 8)
	for count, scale := range []string{"16h48m", "0.7d", "16.8h"} {
		status, out, stderr := s.run("", "hit", "--scale", scale, "--limit", "5", "k")
		require.Zero(t, status, stderr)
		require.Regexp(t, fmt.Sprintf(`(?m)^k +allowed +%d +5 `, count+1), out)
	}
}

func TestTakesFromServersAreGrantedUpToTheLimit(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size)
		expect := func(status int, line string, lines ...string) {
			t.Helper()
			got, out, stderr := s.run("", strings.Split(line, " ")...)
			require.Empty(t, stderr, line)
			require.Equal(t, status, got, line)
			for _, want := range lines {
				require.Regexp(t, `(?m)^`+want, out, line)
			}
		}
		expect(0, "take --scale 1m --limit 5 -n 3 a b", `a +granted +3 +5 +2 `, `b +granted +3 +5 +2 `)
		expect(statusNo, "take --scale 1m --limit 5 -n 3 new a", `new +not taken +0 +5 +5 +-$`, `a +refused +3 +5 +2 `)
		expect(statusNo, "take --json --scale 1m --limit 5 -n 3 b new", `{"key":"b","allowed":false,"count":3,"limit":5,"remaining":2,`,
			`{"key":"new","allowed":false,"count":0,"limit":5,"remaining":5,`)
		expect(statusNo, "take --json --scale 1m --limit 5 -n 6 a", `{"key":"a","allowed":false,"count":0,"limit":5,"remaining":0}`)

		expect(0, "wait --scale 1m --limit 5 -n 2 a b", `a +granted +5 +5 +0 `, `b +granted +5 +5 +0 `)
		_, out, _ := s.run("", strings.Split("--timeout 20s wait --scale 1m --limit 5 new a never", " ")...)
		require.NotContains(t, out, "never")
		expect(statusNo, "--timeout 20s wait --scale 1m --limit 5 new a never", `new +granted +2 +5 +3 `, `a +refused `)
		for range 2 { // the second one waits for the next window
			expect(0, "wait --scale 2s --limit 1 soon", `soon +granted +1 +1 +0 `)
		}
		s.fails("wait --scale 1m --limit 5 -n 6 a", "6", "5")
	})
}
