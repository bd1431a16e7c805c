package testkit

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Redis is a process that listens on a port of 127.0.0.1, or on a Unix socket.
type Redis struct {
	Network string // tcp or unix
	Addr    string
	Port    string // of tcp

	*process
	dir  string
	args []string

	mu   sync.Mutex // guards what follows
	nc   net.Conn   // for Do; nil if there is none
	read *bufio.Reader
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

// busOffset is the distance between the port of a server and that of its cluster's bus. It is not
// the default, which leaves less than half of the ports.
const busOffset = 1

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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nc == nil {
		nc, err := s.Dial(context.Background(), &net.Dialer{Timeout: time.Second})
		if err != nil {
			return "", err
		}
		s.nc, s.read = nc, bufio.NewReader(nc)
	}
	s.nc.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := io.WriteString(s.nc, b.String())
	var reply string
	if err == nil {
		reply, err = readReply(s.read)
	}
	if err != nil {
		s.nc.Close()
		s.nc = nil
	}
	return reply, err
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

// readReply reads a reply of the protocol RESP2.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	text := line[1:]
	switch line[0] {
	case '-':
		return "", fmt.Errorf("redis: %s", text)
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", err
		}
		value := make([]byte, n+2)
		_, err = io.ReadFull(r, value)
		return string(value[:n]), err
	case '*':
		n, err := strconv.Atoi(text)
		lines := make([]string, max(n, 0))
		for i := 0; i < len(lines) && err == nil; i++ {
			lines[i], err = readReply(r)
		}
		return strings.Join(lines, "\n"), err
	default: // + and :
		return text, nil
	}
}
