package testkit

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a process that listens on a port of 127.0.0.1, or on a Unix socket.
type Redis struct {
	Network string // tcp or unix
	Addr    string
	Port    string // of tcp

	dir     string
	args    []string
	process *os.Process
	done    chan struct{} // closed when the process has ended
}

// patience is how long to wait for a server: one of a busy machine may not respond for seconds.
const patience = time.Minute

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
	NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Redis{Network: "unix", Addr: filepath.Join(dir, "socket"), dir: dir}
	s.args = append([]string{"--port", "0", "--unixsocket", s.Addr}, args...)
	s.Restart(t)
	return s
}

// Restart starts a server again that was killed.
func (s *Redis) Restart(t testing.TB) {
	t.Helper()
	NoError(t, s.begin(t))
}

// begin starts the process, and returns when it responds and has loaded its data. If it ends before, the error has its
// log.
func (s *Redis) begin(t testing.TB) error {
	cmd := exec.Command(redisProgram(t), append(s.args, "--dir", s.dir, "--logfile", "log", "--save", "")...)
	done := make(chan struct{})
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { cmd.Wait(); close(done) }()
	s.process, s.done = cmd.Process, done
	t.Cleanup(s.Kill)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		select {
		case <-done:
			return fmt.Errorf("%v has ended: %s", cmd, read(filepath.Join(s.dir, "log")))
		default:
		}
		info, _ := s.Do("INFO")
		if strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Pid)) &&
			!strings.Contains(info, "loading:1") {
			return nil
		}
	}
	s.Kill()
	return fmt.Errorf("%v is not ready", cmd)
}

// Kill kills the process.
func (s *Redis) Kill() {
	s.process.Kill()
	<-s.done
}

// Freeze stops the process. It keeps its connections and does not respond.
func (s *Redis) Freeze(t testing.TB) { s.signal(t, "STOP") }

// Thaw continues the process after Freeze.
func (s *Redis) Thaw(t testing.TB) { s.signal(t, "CONT") }

func (s *Redis) signal(t testing.TB, name string) {
	t.Helper()
	NoError(t, exec.Command("kill", "-"+name, strconv.Itoa(s.process.Pid)).Run())
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
		err = fmt.Errorf("redis: %v: %w: %s%s", args, err, failure.String(), reply)
	}
	return strings.TrimSuffix(string(reply), "\n"), err
}

// Must sends a command that must succeed.
func (s *Redis) Must(t testing.TB, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...)
	NoError(t, err)
	return reply
}

// onFreePort calls begin with a port on which no program listens. If another program gets the port first, or has the
// next one, it tries others.
func onFreePort(t testing.TB, begin func(port string) error) {
	t.Helper()
	var err error
	for range 10 {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		NoError(t, listenErr)
		l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if err = begin(port); err == nil {
			return
		}
	}
	t.Fatal(err)
}
