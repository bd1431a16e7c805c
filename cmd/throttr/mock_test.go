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
)

// mocking is "throttr mock" in a process of its own.
type mocking struct {
	*exec.Cmd
	addr, about string // the lines that it has printed
	rest        *bufio.Reader
	stderr      bytes.Buffer
}

func startMock(t *testing.T, args ...string) *mocking {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	m := &mocking{Cmd: exec.CommandContext(ctx, program, append([]string{"mock"}, args...)...)}
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
	m.addr, m.about = line(), line()
	return m
}

// end sends a signal and returns the exit status.
func (m *mocking) end(t *testing.T, s os.Signal) int {
	t.Helper()
	require.NoError(t, m.Process.Signal(s))
	rest, err := io.ReadAll(m.rest)
	require.NoError(t, err)
	require.Empty(t, rest)
	m.Wait()
	return m.ProcessState.ExitCode()
}

func TestTheMockEndsCleanlyOnASignal(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		m := startMock(t, "-addr", "127.0.0.1:0", "-size", "4")
		require.Equal(t, "values of 4 bytes (uint32), hazards grace=on,lateexpiry=off,wrap=on,events=on,lockup=off", m.about)
		shell{t, m.addr}.prints(0, "k  inserted\n", "insert -ttl 1h k 70000")
		require.Zero(t, m.end(t, s), s)
		require.Empty(t, m.stderr.String())
	}
}

func TestTheMockTellsOfViolations(t *testing.T) {
	t.Parallel()
	m := startMock(t, "-addr", "127.0.0.1:0")
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

func TestTheMockListensOnAUnixSocket(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/s"
	m := startMock(t, "-unix", path, "-hazard", "grace=off,lateexpiry=on", "-hazard", "lockup=on")
	require.Equal(t, "unix://"+path, m.addr)
	require.Equal(t, "values of 2 bytes (uint16), hazards grace=off,lateexpiry=on,wrap=on,events=on,lockup=on", m.about)
	sh := shell{t, m.addr}
	sh.prints(0, "k  inserted\n", "insert -ttl 1h k 1")
	require.Zero(t, m.end(t, syscall.SIGTERM))
	require.NoFileExists(t, path)
	sh.fails("query k", "can't connect to "+m.addr)
}

func TestTheMockTakesItsTime(t *testing.T) {
	t.Parallel()
	m := startMock(t, "-addr", "127.0.0.1:0", "-service-time", "1ms")
	require.Equal(t, "values of 2 bytes (uint16), hazards grace=on,lateexpiry=off,wrap=on,events=on,lockup=off, 1ms for each request", m.about)
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

func TestTheMockAnnouncesItselfInJSON(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	status := make(chan int)
	go func() {
		status <- run(ctx, []string{"mock", "-json", "-addr", "127.0.0.1:0", "-size=1"}, nil, w, io.Discard)
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^\{"address":"127.0.0.1:\d+","value_size":1,"hazards":\{"events":true,"grace":true,"lateexpiry":false,"lockup":false,"wrap":true\}\}\n$`, line)
	cancel()
	require.Zero(t, <-status)
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	shell{t, ""}.fails("mock -addr "+l.Addr().String(), "in use")
}
