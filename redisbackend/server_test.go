package redisbackend_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// program finds the server to test with. THROTTR_REDIS_SERVER names another than that in
// the path, such as valkey-server.
func program(t testing.TB) string {
	t.Helper()
	name := os.Getenv("THROTTR_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip("needs a real server: apt-get install redis-server (" + err.Error() + ")")
	}
	return path
}

// server is a Redis server of the test's own.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startServer starts a server on a free port, which ends with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	_, port, _ := net.SplitHostPort(freeAddr(t))
	s := &server{t: t, addr: "127.0.0.1:" + port, dir: t.TempDir()}
	s.args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", "log", "--save", "",
	}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

// freeAddr returns an address that nobody listens at.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the server, again where it was, and returns when it answers.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(program(s.t), s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.done = make(chan struct{})
	go func() { s.cmd.Wait(); close(s.done) }()
	timeout := time.After(20 * time.Second)
	for !s.answers() {
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-s.done:
		case <-timeout:
		}
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Fatalf("%v does not answer: %s", s.cmd, log)
	}
}

// answers asks over a connection of its own whether the server is up and has loaded.
func (s *server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	reply := make([]byte, 7)
	n, _ := conn.Read(reply)
	return strings.HasPrefix(string(reply[:n]), "+PONG")
}

// kill ends the server at once.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.done
}

// connect returns a client of the server, or of its cluster.
func (s *server) connect(opts ...func(*rueidis.ClientOption)) rueidis.Client {
	s.t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.addr}, DisableCache: true}
	for _, opt := range opts {
		opt(&option)
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// redis makes a call that must not fail.
func redis(t testing.TB, client rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	r := client.Do(context.Background(), client.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}
