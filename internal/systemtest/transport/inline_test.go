package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// These tests use sockets: on any other connection, callers do not read their own responses.

// takeKey reads what follows the op of a QUERY.
func takeKey(nc net.Conn) bool {
	size := make([]byte, 1)
	if _, err := io.ReadFull(nc, size); err != nil {
		return false
	}
	_, err := io.ReadFull(nc, make([]byte, size[0]))
	return err == nil
}

// lone connects to f, with one connection and no second chances, and has it know that its
// caller is alone.
func lone(t *testing.T, f *testkit.Fake[uint16], cfg throttr.Config) *throttr.Client[uint16] {
	cfg.Servers, cfg.MaxConns = []string{f.Listen(t)}, 1
	client, err := throttr.Connect[uint16](t.Context(), testkit.WithoutRetries(cfg))
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	for range 3 {
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
	}
	require.NotZero(t, testkit.ServerStats(client).InlineReads, "the caller has not read its own response")
	return client
}

// notFound answers QUERYs, after wait, and counts them.
type notFound struct {
	asked atomic.Int64
	wait  func(n int64)
}

func (a *notFound) play(_ codec.Op, nc net.Conn) bool {
	if !takeKey(nc) {
		return false
	}
	n := a.asked.Add(1)
	if a.wait != nil {
		a.wait(n)
	}
	_, err := nc.Write([]byte{0})
	return err == nil
}

func TestALoneCallerLeavesWhenHisContextEnds(t *testing.T) {
	for before := range int64(4) { // calls with the same context
		t.Run(fmt.Sprint(before), func(t *testing.T) { loneCallerLeaves(t, before) })
	}
}

func loneCallerLeaves(t *testing.T, before int64) {
	release := make(chan struct{})
	server := &notFound{wait: func(n int64) {
		if n == 4+before {
			<-release
		}
	}}
	client := lone(t, &testkit.Fake[uint16]{Play: server.play}, throttr.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	for range before {
		_, _, err := client.Query(ctx, "k")
		require.NoError(t, err)
	}
	left := make(chan error)
	go func() {
		_, _, err := client.Query(ctx, "k")
		left <- err
	}()
	require.Eventually(t, func() bool { return server.asked.Load() == 4+before }, 5*time.Second, time.Millisecond)
	cancel()
	err := <-left
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, throttr.SafeToRetry(err), "it was sent")
	close(release)
	_, _, err = client.Query(t.Context(), "k") // its own answer, and not the one that was left
	require.NoError(t, err)
	require.EqualValues(t, 5+before, server.asked.Load())
	require.EqualValues(t, 1, testkit.ServerStats(client).Dials)
}

func TestALoneCallerReadsForThoseWhoComeMeanwhile(t *testing.T) {
	release := make(chan struct{})
	server := &notFound{wait: func(n int64) {
		if n == 4 {
			<-release
		}
	}}
	client := lone(t, &testkit.Fake[uint16]{Play: server.play}, throttr.Config{})
	answered := make(chan error)
	query := func() {
		_, _, err := client.Query(t.Context(), "k")
		answered <- err
	}
	go query()
	require.Eventually(t, func() bool { return server.asked.Load() == 4 }, 5*time.Second, 100*time.Microsecond)
	for range 20 {
		go query()
	}
	require.Eventually(t, func() bool { return testkit.ServerStats(client).InFlight == 21 }, 5*time.Second, 100*time.Microsecond)
	close(release)
	for range 21 {
		require.NoError(t, <-answered)
	}
}

func TestAConnectionIsLostWhileNobodyReads(t *testing.T) {
	hangUp := make(chan struct{})
	var asked atomic.Int64
	f := &testkit.Fake[uint16]{Play: func(_ codec.Op, nc net.Conn) bool {
		if !takeKey(nc) {
			return false
		}
		if _, err := nc.Write([]byte{0}); err != nil {
			return false
		}
		if asked.Add(1) == 3 {
			<-hangUp
			return false
		}
		return true
	}}
	client := lone(t, f, throttr.Config{})
	close(hangUp)
	require.Eventually(t, func() bool { return testkit.ServerStats(client).Failures == 1 }, 5*time.Second, time.Millisecond,
		"nobody has asked for anything, and it is noticed all the same")
	_, _, err := client.Query(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, 2, testkit.ServerStats(client).Dials)
}

func TestAnEventComesWhileNobodyReads(t *testing.T) {
	event, err := codec.Event[uint16]{Channel: []byte("news"), Payload: []byte("!")}.AppendBinary(nil)
	require.NoError(t, err)
	server := &notFound{}
	f := &testkit.Fake[uint16]{Play: func(op codec.Op, nc net.Conn) bool {
		if !server.play(op, nc) {
			return false
		}
		_, err := nc.Write(event)
		return err == nil
	}}
	client := lone(t, f, throttr.Config{})
	for n := uint64(3); n < 20; n++ {
		require.Eventually(t, func() bool { return testkit.ServerStats(client).Events == n }, 5*time.Second, 100*time.Microsecond)
		_, _, err := client.Query(t.Context(), "k")
		require.NoError(t, err)
	}
}

func TestALoneCallerGivesUpASilentServer(t *testing.T) {
	release := make(chan struct{})
	server := &notFound{wait: func(n int64) {
		if n == 4 {
			<-release
		}
	}}
	client := lone(t, &testkit.Fake[uint16]{Play: server.play}, throttr.Config{StallTimeout: time.Second})
	_, _, err := client.Query(t.Context(), "k")
	require.ErrorIs(t, err, throttr.ErrStalled)
	close(release)
}

func TestCloseEndsALoneCaller(t *testing.T) {
	release := make(chan struct{})
	server := &notFound{wait: func(n int64) {
		if n == 4 {
			<-release
		}
	}}
	client := lone(t, &testkit.Fake[uint16]{Play: server.play}, throttr.Config{})
	left := make(chan error)
	go func() {
		_, _, err := client.Query(t.Context(), "k")
		left <- err
	}()
	require.Eventually(t, func() bool { return server.asked.Load() == 4 }, 5*time.Second, 100*time.Microsecond)
	require.NoError(t, client.Close())
	require.ErrorIs(t, <-left, throttr.ErrClosed)
	testkit.RequireNoGoroutines(t)
	close(release)
}

func TestAByteNobodyAskedForEndsAnIdleConnection(t *testing.T) {
	server, stray := &notFound{}, make(chan struct{})
	f := &testkit.Fake[uint16]{Play: func(op codec.Op, nc net.Conn) bool {
		if !server.play(op, nc) {
			return false
		}
		if server.asked.Load() == 3 {
			<-stray
			nc.Write([]byte{1})
		}
		return true
	}}
	client := lone(t, f, throttr.Config{})
	close(stray)
	require.Eventually(t, func() bool { return testkit.ServerStats(client).Failures == 1 }, 5*time.Second, time.Millisecond)
	_, _, err := client.Query(t.Context(), "k")
	require.NoError(t, err)
}
