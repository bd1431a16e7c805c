package testkit

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Redis is a process that listens on a port of 127.0.0.1, or on a Unix socket.
type Redis struct {
	Network string // tcp or unix
	Addr    string
	Port    string // of tcp

	*process
	dir  string
	args []string
}

// redisProgram returns the server program: $THROTTR_REDIS_SERVER, or redis-server. Without one, the test
// is skipped.
func redisProgram(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("THROTTR_REDIS_SERVER"), "redis-server"))
	if err != nil {
		t.Skip(err)
	}
	return path
}

// StartRedis starts a server that ends with the test.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return startRedis(t, func(string) []string { return args })
}

// startRedis starts a server with arguments that may depend on its port.
func startRedis(t testing.TB, args func(port string) []string) *Redis {
	t.Helper()
	s := &Redis{Network: "tcp", dir: t.TempDir()}
	onFreePort(t, func(port string) error {
		s.Port = port
		s.Addr = "127.0.0.1:" + port
		s.args = append(args(port), "--port", port, "--bind", "127.0.0.1")
		return s.begin(t)
	})
	return s
}

// StartRedisOnSocket starts a server on a Unix socket. It ends with the test. No other program can listen
// there while it is down.
func StartRedisOnSocket(t testing.TB, args ...string) *Redis {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // t.TempDir may be too long for a socket
	noError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Redis{Network: "unix", Addr: filepath.Join(dir, "socket"), dir: dir}
	s.args = append([]string{"--port", "0", "--unixsocket", s.Addr}, args...)
	s.Restart(t)
	return s
}

// Restart starts a server again that was killed.
func (s *Redis) Restart(t testing.TB) {
	t.Helper()
	noError(t, s.begin(t))
}

// begin starts the process, and returns when it responds and has loaded its data.
func (s *Redis) begin(t testing.TB) (err error) {
	cmd := exec.Command(redisProgram(t), append(s.args, "--dir", s.dir, "--logfile", "log", "--save", "")...)
	s.process, err = start(t, cmd, filepath.Join(s.dir, "log"), func() bool {
		pid, err := s.Do("INFO", "server")
		if err == nil {
			_, err = s.Do("PING")
		}
		return err == nil && strings.Contains(pid, fmt.Sprintf("process_id:%d\r", cmd.Process.Pid))
	})
	return err
}

// Dial connects to the server.
func (s *Redis) Dial(ctx context.Context, d *net.Dialer) (net.Conn, error) {
	return d.DialContext(ctx, s.Network, s.Addr)
}

// Do sends a command and returns the reply as text, an array with a line for each element.
func (s *Redis) Do(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	to := []string{"-e", "-h", "127.0.0.1", "-p", s.Port}
	if s.Network == "unix" {
		to = []string{"-e", "-s", s.Addr}
	}
	cmd := exec.CommandContext(ctx, "redis-cli", append(to, args...)...)
	var failure strings.Builder
	cmd.Stderr = &failure
	reply, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("redis: %w: %s%s", err, failure.String(), reply)
	}
	return strings.TrimSuffix(string(reply), "\n"), err
}

// Must sends a command that must succeed.
func (s *Redis) Must(t testing.TB, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}
