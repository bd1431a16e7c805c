package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
)

// mockProcess is "throttr mock" in a process of its own.
type mockProcess struct {
	*exec.Cmd
	addr, settings string // its first lines
	rest           *bufio.Reader
	stderr         bytes.Buffer
}

const defaultHazards = "grace=on,lateexpiry=off,wrap=on,events=on,lockup=off,overflow=off,garbledlist=off,startup=off,strayunit=off,reorder=off"

func startMock(t *testing.T, args ...string) *mockProcess {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	m := &mockProcess{Cmd: exec.CommandContext(ctx, program, append([]string{"mock"}, args...)...)}
	m.Env = append(os.Environ(), "THROTTR_TEST_PROGRAM=1")
	m.Cmd.Stderr = &m.stderr
	stdout, err := m.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, m.Start())
	m.rest = bufio.NewReader(stdout)
	line := func() string {
		l, err := m.rest.ReadString('\n')
		require.NoError(t, err, &m.stderr)
		return strings.TrimSuffix(l, "\n")
	}
	m.addr, m.settings = line(), line()
	return m
}

// end sends a signal and returns the exit status.
func (m *mockProcess) end(t *testing.T, s os.Signal) int {
	t.Helper()
	require.NoError(t, m.Process.Signal(s))
	rest, err := io.ReadAll(m.rest)
	require.NoError(t, err)
	require.Empty(t, rest)
	m.Wait()
	return m.ProcessState.ExitCode()
}

func TestMockEndsOnSignal(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		m := startMock(t, "--addr", "127.0.0.1:0", "--size", "4")
		require.Equal(t, "values of 4 bytes (uint32), hazards "+defaultHazards, m.settings)
		shell{t, m.addr}.prints(0, "k  inserted\n", "insert --ttl 1h k 70000")
		require.Zero(t, m.end(t, s), s)
		require.Empty(t, m.stderr.String())
	}
}

func TestMockPrintsViolations(t *testing.T) {
	t.Parallel()
	m := startMock(t, "--addr", "127.0.0.1:0")
	conn, err := net.Dial("tcp", m.addr)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte{0x20})
	require.NoError(t, err)
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, statusError, m.end(t, os.Interrupt))
	require.Regexp(t, `^H6: connection 1: .*\nthrottr mock: 1 violation, .*\n$`, m.stderr.String())
}

func TestMockListensOnUnixSocket(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/s"
	m := startMock(t, "--unix", path, "--hazard", "grace=off,lateexpiry=on", "--hazard", "lockup=on")
	require.Equal(t, "unix://"+path, m.addr)
	require.Equal(t, "values of 2 bytes (uint16), hazards grace=off,lateexpiry=on,wrap=on,events=on,lockup=on,overflow=off,garbledlist=off,startup=off,strayunit=off,reorder=off", m.settings)
	sh := shell{t, m.addr}
	sh.prints(0, "k  inserted\n", "insert --ttl 1h k 1")
	require.Zero(t, m.end(t, syscall.SIGTERM))
	require.NoFileExists(t, path)
	sh.fails("query k", "can't connect to "+m.addr)
}

func TestMockSpendsServiceTime(t *testing.T) {
	t.Parallel()
	m := startMock(t, "--addr", "127.0.0.1:0", "--service-time", "1ms")
	require.Equal(t, "values of 2 bytes (uint16), hazards "+defaultHazards+", 1ms for each request", m.settings)
	conn, err := net.Dial("tcp", m.addr)
	require.NoError(t, err)
	defer conn.Close()
	start := time.Now()
	_, err = conn.Write(bytes.Repeat([]byte("\x02\x01k"), 50))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 50))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	require.Zero(t, m.end(t, os.Interrupt))
}

func TestMockCreatesSlowly(t *testing.T) {
	t.Parallel()
	m := startMock(t, "--addr", "127.0.0.1:0", "--slow-creation", "41000")
	require.Equal(t, "values of 2 bytes (uint16), hazards "+defaultHazards+", slow creation after 41000 records", m.settings)
	conn, err := net.Dial("tcp", m.addr)
	require.NoError(t, err)
	defer conn.Close()
	start := time.Now()
	_, err = conn.Write(bytes.Repeat([]byte("\x01\x00\x00\x06\x01\x00\x01k"), 100))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 100))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 100*140*time.Microsecond)
	require.Zero(t, m.end(t, os.Interrupt))
}

func TestMockPrintsSettingsAsJSON(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	status := make(chan int)
	go func() {
		status <- run(ctx, []string{"mock", "--json", "--addr", "127.0.0.1:0", "--size=1"}, nil, w, io.Discard)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^\{"address":"127.0.0.1:\d+","value_size":1,"hazards":\{"events":true,"garbledlist":false,"grace":true,"lateexpiry":false,"lockup":false,"overflow":false,"reorder":false,"startup":false,"strayunit":false,"wrap":true\}\}\n$`, line)
	cancel()
	require.Zero(t, <-status)
}

func TestAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	shell{t, ""}.fails("mock --addr "+l.Addr().String(), "in use")
}

func TestEveryHazardCanBeSwitched(t *testing.T) {
	t.Parallel()
	for _, h := range mockserver.Hazards() {
		_, name := hazardName(h)
		require.NotEmpty(t, name)
		require.Contains(t, mockCommand(new(env)).Long, "\n  "+name+"="+onOff(h.Default()))
		for _, on := range []bool{true, false} {
			hazards, err := parseHazards(map[string]string{name: onOff(on)})
			require.NoError(t, err)
			require.Equal(t, map[mockserver.Hazard]bool{h: on}, hazards)
		}
	}
}

func TestMockSwitchesHazard(t *testing.T) {
	t.Parallel()
	m := startMock(t, "--addr", "127.0.0.1:0", "--hazard", "wrap=off")
	s := shell{t, m.addr}
	s.prints(0, "k  inserted\n", "insert --ttl 1h k 65535")
	s.run("", "update", "k", "+1")
	require.Contains(t, s.yes("query k"), "k    65535 ", "the counter has not wrapped around")
	require.Zero(t, m.end(t, os.Interrupt))
}
