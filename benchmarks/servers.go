package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/throttr-go/throttr/internal/servicetime"
)

// oldServer are the flags of a mock server that takes as long as a real one that has made many
// records.
var oldServer = []string{"--real-service-time", "--slow-creation", strconv.Itoa(servicetime.OldAge)}

// servers are processes that listen on the loopback interface.
type servers struct {
	dir     string // of temporary files
	command string // the path of the command throttr
	mock    *process
	real    *process // the server of real times: a real one, or a mock server with the service times of one
	old     *process // a mock server that is as slow as a real one that has made many records
	shared  *process // a mock server for keys that processes share: clients sweep no records of others there
	redis   *process

	sharedKeys atomic.Int64 // keys that were shared
}

// process is a server.
type process struct {
	addr string
	cmd  *exec.Cmd
	errs bytes.Buffer // its standard error
}

// startServers builds throttr and starts all servers. They end with ctx at the latest.
func startServers(ctx context.Context) (s *servers, err error) {
	if s, err = newServers(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for _, m := range []struct {
		server **process
		args   []string
	}{{&s.mock, nil}, {&s.real, []string{"--real-service-time"}}, {&s.old, oldServer}, {&s.shared, nil}} {
		if addr := realServer(); addr != "" && m.server == &s.real {
			s.real = &process{addr: addr}
		} else if *m.server, err = s.startMock(ctx, "127.0.0.1:0", m.args...); err != nil {
			return nil, err
		}
	}
	s.redis, err = s.startRedis(ctx)
	return s, err
}

// newServers builds throttr, and starts no server.
func newServers(ctx context.Context) (*servers, error) {
	dir, err := os.MkdirTemp("", "throttr-benchmarks-")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir, command: filepath.Join(dir, "throttr")}
	if _, err := output(ctx, "go", "build", "-C", "../cmd/throttr", "-o", s.command, "."); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// realServer returns the address of the real server that THROTTR_SERVERS names, or "".
func realServer() string {
	addr, _, _ := strings.Cut(os.Getenv("THROTTR_SERVERS"), ",")
	return addr
}

// startMock starts a mock server. Its address is its first line of output.
func (s *servers) startMock(ctx context.Context, addr string, args ...string) (*process, error) {
	args = append([]string{"mock", "--addr", addr, "--size", "4"}, args...)
	p := &process{cmd: exec.CommandContext(ctx, s.command, args...)}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	p.addr = strings.TrimSpace(line)
	if err != nil {
		return nil, fmt.Errorf("the mock server prints no address: %w", errors.Join(err, p.end()))
	}
	return p, nil
}

// freeAddress returns an address that no server has.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startRedis starts a Redis server that stores nothing on disk.
func (s *servers) startRedis(ctx context.Context) (p *process, err error) {
	for range 3 { // another process may get the port first
		var addr string
		if addr, err = freeAddress(); err != nil {
			return nil, err
		}
		if p, err = s.startRedisAt(ctx, addr); err == nil {
			return p, nil
		}
	}
	return nil, err
}

func (s *servers) startRedisAt(ctx context.Context, addr string) (*process, error) {
	p := &process{addr: addr}
	_, port, _ := net.SplitHostPort(addr)
	p.cmd = exec.CommandContext(ctx, "redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--logfile", "redis.log", "--save", "", "--appendonly", "no")
	if err := p.start(); err != nil {
		return nil, fmt.Errorf("redis-server is needed: %w", err)
	}
	for range 1000 {
		if p.responds() {
			return p, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), p.end())
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
	return nil, errors.Join(fmt.Errorf("redis-server does not respond: %s", log), p.end())
}

// responds reports whether a Redis server is up.
func (p *process) responds() bool {
	conn, err := net.DialTimeout("tcp", p.addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	reply := make([]byte, len("+PONG"))
	_, err = conn.Read(reply)
	return err == nil && string(reply) == "+PONG"
}

// redisCPU returns the processor time that Redis has used, if the system reports it.
func (s *servers) redisCPU() time.Duration {
	if s == nil {
		return 0
	}
	return s.redis.cpu()
}

// cpu returns the processor time that the server has used, if the system reports it.
func (p *process) cpu() time.Duration {
	const user, system = 11, 12 // fields after the name, in hundredths of a second
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.Atoi(fields[user])
	k, _ := strconv.Atoi(fields[system])
	return time.Duration(u+k) * time.Second / 100
}

func (p *process) start() error {
	p.cmd.Stderr = &p.errs
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	return p.cmd.Start()
}

// end ends the server. It returns an error if the server failed.
func (p *process) end() error {
	p.cmd.Cancel()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), err, p.errs.Bytes())
	}
	return nil
}

// stop ends all servers. It returns an error if one of them failed.
func (s *servers) stop() error {
	var errs []error
	for _, p := range []*process{s.mock, s.real, s.old, s.shared, s.redis} {
		if p != nil && p.cmd != nil {
			errs = append(errs, p.end())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// output runs a command and returns its output.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.Output()
	if err == nil {
		return out, nil
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return out, fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
}
