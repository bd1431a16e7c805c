package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
)

func TestHoldersAreListedByProcess(t *testing.T) {
	t.Parallel()
	sh := shell{t, "redis://" + testkit.StartRedis(t).Addr + "?lazy=true"}
	limit := inflight.Limit{Name: "exports", Max: 5, Lease: 6 * time.Second}
	sh.prints(statusNo, "", "holders --name exports user:42")
	var limiters []*inflight.Limiter // as in two processes
	for _, n := range []uint64{4, 1} {
		b, err := throttr.Open(t.Context(), sh.servers)
		require.NoError(t, err)
		defer b.Close()
		require.Eventually(t, func() bool { return b.Ping(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
		l := inflight.New(b, inflight.WithTimeout(time.Minute))
		defer l.Close()
		_, err = l.Acquire(t.Context(), "user:42", limit, n)
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	go limiters[1].Acquire(t.Context(), "user:42", limit, 2)
	require.Eventually(t, func() bool {
		s, err := limiters[0].Peek(t.Context(), "user:42", limit)
		return err == nil && s.Waiting == 1
	}, time.Minute, 10*time.Millisecond)

	host, err := os.Hostname()
	require.NoError(t, err)
	process := fmt.Sprintf("%.32s:%d:", host, os.Getpid())
	status, out, stderr := sh.run("", "holders", "--name", "exports", "user:42")
	require.Empty(t, stderr)
	require.Zero(t, status)
	require.Regexp(t, `^process +held +waiting +lease ends in\n(`+process+`\w{10} +\d +\d +[3-6]\.?\d*s\n){2}$`, out)
	require.Regexp(t, process+`\w+ +4 +0 `, out)
	require.Regexp(t, process+`\w+ +1 +1 `, out)
	_, out, _ = sh.run("", "holders", "--json", "--name", "exports", "user:42")
	require.Contains(t, out, `{"key":"user:42","process":"`+process)
	require.Contains(t, out, `,"held":1,"waiting":1,"lease_ends_seconds":`)
	sh.prints(statusNo, "", "holders user:42")

	require.Regexp(t, `^\d\d:\d\d:\d\d  every 100ms  places in flight of exports

key +process +held +waiting +lease ends in
user:42 +`+process+`\S+ +4 +0 +\d[\d.]*m?s
user:42 +`+process+`\S+ +1 +1 +\d[\d.]*m?s
$`, sh.yes("top --once --every 100ms --name exports nobody user:42"))
	require.NotContains(t, sh.yes("top --once --every 100ms -n 1 --name exports user:42"), " 1 ")
	out = sh.yes("top --once --every 100ms --json --name exports user:42")
	require.Contains(t, out, `,"holders":[{"key":"user:42","process":"`+process)
	require.Contains(t, sh.yes("top --once --every 100ms --json user:42"), `,"holders":[]}`)

	v := holdersView{Holders: make([]holder, 50), Error: strings.Repeat("long ", 40)}
	for _, size := range [][2]int{{80, 24}, {40, 10}, {1, 1}} {
		lines := v.lines(size[0], size[1], "  q: quit")
		require.Len(t, lines, size[1])
		for _, line := range lines {
			require.LessOrEqual(t, utf8.RuneCountInString(line), size[0], line)
		}
	}
	shell{t, "memory://"}.fails("holders user:42", "URL of Redis")
}

// What a URL says but lazy=true stays: a mistake in it must not count elsewhere.
func TestURLsAreOpenedNow(t *testing.T) {
	t.Parallel()
	addr := testkit.StartRedis(t).Addr
	for _, url := range []string{"memory://", "memory://?lazy=true", "redis://" + addr + "?lazy=true&prefix=a:", "redis://" + addr + "?prefix=a:&lazy=true"} {
		b, err := openNow(t.Context(), url)
		require.NoError(t, err, url)
		require.NoError(t, b.Ping(t.Context()), url)
		require.NoError(t, b.Close())
	}
	for _, query := range []string{"lazy=true&prefix=a;b", "lazy=true&x=%zz", "lazy=junk", "lazy=false&lazy=true&lazy=false"} {
		_, err := openNow(t.Context(), "redis://"+addr+"?"+query)
		require.Error(t, err, query)
	}
}
