package redisbackend_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// program returns the path of the server to test with. THROTTR_REDIS_SERVER is its name, for
// example valkey-server. Default: redis-server.
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

// server is a Redis server that a test has started.
type server struct {
	t       testing.TB
	network string
	addr    string
	dir     string
	args    []string
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended
}

// freePort is replaced by a free port in the arguments of startServer.
const freePort = "a free port"

// startServer starts a server on a free port. The server ends with the test. If another program
// takes the port first, startServer tries another port.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	args = append([]string{"--bind", "127.0.0.1", "--port", freePort}, args...)
	var err error
	for range 5 {
		own := slices.Clone(args)
		for i, arg := range own {
			if arg == freePort {
				own[i] = findPort(t)
			}
		}
		s := newServer(t, "tcp", "127.0.0.1:"+own[3], t.TempDir(), own)
		if err = s.begin(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// startOnSocket starts a server on a Unix socket. The server ends with the test. No other program
// can listen there while the server is down.
func startOnSocket(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	s := newServer(t, "unix", socket, dir, append([]string{"--port", "0", "--unixsocket", socket}, args...))
	s.start()
	return s
}

func newServer(t testing.TB, network, addr, dir string, args []string) *server {
	return &server{t: t, network: network, addr: addr, dir: dir, args: append(args, "--dir", dir, "--logfile", "log", "--save", "")}
}

// findPort returns a port on which no program listens.
func findPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// start starts or restarts the server, and returns when it responds.
func (s *server) start() {
	s.t.Helper()
	if err := s.begin(); err != nil {
		s.t.Fatal(err)
	}
}

// begin is start with an error.
func (s *server) begin() error {
	s.cmd = exec.Command(program(s.t), s.args...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.t.Cleanup(s.kill)
	done := make(chan struct{})
	s.done = done
	go func() { s.cmd.Wait(); close(done) }()
	timeout := time.After(patience)
	for {
		up := s.responds() // or another program does
		select {
		case <-s.done:
		case <-timeout:
			s.kill()
		case <-time.After(10 * time.Millisecond):
			if up {
				return nil
			}
			continue
		}
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%v does not respond: %s", s.cmd, log)
	}
}

// dial connects to the server.
func (s *server) dial(ctx context.Context, d *net.Dialer) (net.Conn, error) {
	return d.DialContext(ctx, s.network, s.addr)
}

// responds reports whether the server is up and has loaded its data.
func (s *server) responds() bool {
	conn, err := s.dial(context.Background(), &net.Dialer{Timeout: time.Second})
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

// kill kills the server.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.done
}

// patience is how long clients wait for a response: a busy machine may stop a server for seconds.
const patience = time.Minute

// connect returns a client of the server or of its cluster.
func (s *server) connect(opts ...func(*rueidis.ClientOption)) rueidis.Client {
	s.t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.addr}, DisableCache: true, ConnWriteTimeout: patience}
	if s.network == "unix" {
		option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.dial(ctx, d)
		}
	}
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

// redis sends a command that must not fail.
func redis(t testing.TB, client rueidis.Client, args ...string) rueidis.RedisResult {
	t.Helper()
	r := client.Do(context.Background(), client.B().Arbitrary(args[0]).Args(args[1:]...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return r
}
