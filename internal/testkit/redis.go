package testkit

import (
	"bufio"
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

	dir  string
	args []string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended

	mu   sync.Mutex // guards what follows
	nc   net.Conn   // for Do; nil if there is none
	read *bufio.Reader
}

// program returns the server program: $THROTTR_REDIS_SERVER, or redis-server. Without one, the test
// is skipped.
func program(t testing.TB) string {
	t.Helper()
	name := os.Getenv("THROTTR_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// Start starts a server that ends with the test. Another program may get the port first, so that
// it tries several.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return startRedis(t, func(string) []string { return args })
}

// start starts a server with arguments that may depend on its port.
func startRedis(t testing.TB, args func(port string) []string) *Redis {
	t.Helper()
	var err error
	for range 10 {
		s := &Redis{Network: "tcp", Port: freePort(t), dir: t.TempDir()}
		s.Addr = "127.0.0.1:" + s.Port
		s.args = append(args(s.Port), "--port", s.Port, "--bind", "127.0.0.1")
		if err = s.begin(t); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// StartOnSocket starts a server on a Unix socket. It ends with the test. No other program can listen
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

// patience is how long to wait for a server: one of a busy machine may not respond for seconds.
const patience = time.Minute

// freePort returns a port on which no program listens, and none on the port of a cluster's bus that
// belongs to it.
func freePort(t testing.TB) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		bus, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+busOffset))
		l.Close()
		if err == nil {
			bus.Close()
			return strconv.Itoa(port)
		}
	}
}

// busOffset is the distance between the port of a server and that of its cluster's bus. It is not
// the default, which leaves less than half of the ports.
const busOffset = 1

// begin starts the process, and returns when it responds and has loaded its data.
func (s *Redis) begin(t testing.TB) error {
	s.cmd = exec.Command(program(t), append(s.args, "--dir", s.dir, "--logfile", "log", "--save", "")...)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func() { s.cmd.Wait(); close(s.done) }()
	t.Cleanup(s.Kill)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.done:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("%v has ended: %s", s.cmd, log)
		default:
		}
		pid, err := s.Do("INFO", "server")
		if err == nil {
			_, err = s.Do("PING")
		}
		if err == nil && strings.Contains(pid, fmt.Sprintf("process_id:%d\r", s.cmd.Process.Pid)) {
			return nil
		}
	}
	s.Kill()
	return fmt.Errorf("%v does not respond", s.cmd)
}

// Kill kills the process.
func (s *Redis) Kill() {
	s.cmd.Process.Kill()
	<-s.done
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
