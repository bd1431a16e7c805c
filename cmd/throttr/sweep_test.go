package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// orphans puts records of windows on srv that nobody uses any more, and one of another program.
func orphans(srv *mockserver.Server, n int) {
	for i := range n {
		srv.Set(fmt.Sprintf("wiA:1s:user:%d", i), 5, 15*time.Second)
	}
	srv.Set("jobs", 1, time.Hour)
}

func TestSweepRemovesRecordsOfTheDead(t *testing.T) {
	s, srv := shellFor(t, 2)
	orphans(srv, 3)
	s.prints(0, fmt.Sprintf("%-*s  found  removed  kept  foreign\n%s      3        3     0        1\n",
		len(s.servers), "server", s.servers), "sweep --dry-run")
	require.Len(t, srv.Keys(), 4)
	s.prints(0, `{"server":"`+s.servers+`","found":3,"removed":3,"kept":0,"foreign":1,"dry_run":false}`+"\n", "sweep --json")
	require.Equal(t, []string{"jobs"}, srv.Keys())
	s.fails("sweep all", `unknown command "all"`)
	s.fails("sweep --every -1s", "less than 0")
}

func TestSweepGoesOnUntilItIsInterrupted(t *testing.T) {
	s, srv := shellFor(t, 2)
	orphans(srv, 3)
	var out, stderr strings.Builder
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan int)
	go func() {
		done <- run(ctx, []string{"sweep", "--every", "5ms", "--servers", s.servers}, nil, &out, &stderr)
	}()
	for range 2 {
		require.Eventually(t, func() bool { return len(srv.Keys()) == 1 }, time.Minute, time.Millisecond)
		orphans(srv, 3)
	}
	require.Eventually(t, func() bool { return len(srv.Keys()) == 1 }, time.Minute, time.Millisecond)
	interrupt()
	require.Equal(t, statusOK, <-done, stderr.String())
	require.GreaterOrEqual(t, strings.Count(out.String(), s.servers), 3)
}
