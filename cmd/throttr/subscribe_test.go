package main

import (
	"bufio"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// subscriber is a running "throttr subscribe".
type subscriber struct {
	t              *testing.T
	cancel         context.CancelFunc
	stdout, stderr *bufio.Reader
	status         chan int
}

// subscriber starts the command and waits until it has subscribed.
func (s shell) subscriber(args ...string) *subscriber {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	sub := &subscriber{s.t, cancel, bufio.NewReader(outR), bufio.NewReader(errR), make(chan int, 1)}
	go func() {
		sub.status <- run(ctx, append([]string{"subscribe", "--servers", s.servers}, args...), nil, outW, errW)
		outW.Close()
		errW.Close()
	}()
	require.Equal(s.t, "subscribed to "+quoted(args[len(args)-1])+"\n", sub.line(sub.stderr))
	return sub
}

func (s *subscriber) line(r *bufio.Reader) string {
	s.t.Helper()
	l, err := r.ReadString('\n')
	require.NoError(s.t, err)
	return l
}

// ends requires that the command succeeds without further output.
func (s *subscriber) ends() {
	s.t.Helper()
	require.Zero(s.t, <-s.status)
	for _, r := range []io.Reader{s.stdout, s.stderr} {
		rest, err := io.ReadAll(r)
		require.NoError(s.t, err)
		require.Empty(s.t, rest)
	}
}

func TestSubscribePrintsEachMessageAtOnce(t *testing.T) {
	forSizes(t, func(t *testing.T, size int) {
		s, _ := shellFor(t, size)
		sub := s.subscriber("news")
		s.prints(0, "news  published\n", "publish news hello")
		require.Equal(t, "time                  channel  payload\n", sub.line(sub.stdout))
		require.Regexp(t, `^20\S+Z  news     hello\n$`, sub.line(sub.stdout))
		status, _, stderr := s.run("hello, world\n", "publish", "news", "-")
		require.Zero(t, status, stderr)
		require.Regexp(t, `^20\S+Z  news     "hello, world\\n"\n$`, sub.line(sub.stdout))
		sub.cancel()
		sub.ends()
	})
}

func TestSubscribeEndsAfterNumberOfMessages(t *testing.T) {
	t.Parallel()
	s, _ := shellFor(t, 2)
	sub := s.subscriber("--json", "-n", "2", "a b")
	for _, payload := range []string{"x", "\xff"} {
		status, _, stderr := s.run("", "publish", "a b", payload)
		require.Zero(t, status, stderr)
	}
	head := `^\{"time":"20[^"]+Z","server":"` + s.servers + `","channel":"a b",`
	require.Regexp(t, head+`"payload":"x","gap":false\}\n$`, sub.line(sub.stdout))
	require.Regexp(t, head+`"payload":"\\ufffd","payload_base64":"/w==","gap":false\}\n$`, sub.line(sub.stdout))
	sub.ends()
}

func TestSubscribeToAllPrintsServer(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	s := shell{t, a.Addr() + "," + b.Addr()}
	sub := s.subscriber("*")
	for _, srv := range []*mockserver.Server{a, b} {
		srv.Publish("*", []byte("x"))
		if srv == a {
			require.Regexp(t, `^server +time +channel +payload\n$`, sub.line(sub.stdout))
		}
		require.Regexp(t, `^`+srv.Addr()+`  20\S+Z  \* +x\n$`, sub.line(sub.stdout))
	}
	sub.cancel()
	sub.ends()
}

func TestSubscribePrintsGap(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	sub := s.subscriber("-n", "1", "news")
	srv.Disconnect()
	sub.line(sub.stdout)
	require.Regexp(t, `^20\S+Z  news     \(the connection was lost: messages can be missing\)\n$`, sub.line(sub.stdout))
	s.yes("publish news x")
	require.Contains(t, sub.line(sub.stdout), "x")
	sub.ends()
}

func TestSubscribeNeedsAServer(t *testing.T) {
	t.Parallel()
	shell{t, "127.0.0.1:1"}.fails("subscribe news", "can't connect")
	shell{t, "127.0.0.1:1"}.fails("subscribe", "accepts 1 arg(s), received 0")
	shell{t, "127.0.0.1:1"}.fails("subscribe -n -1 news", `"-1"`)
}
