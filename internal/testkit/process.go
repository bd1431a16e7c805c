package testkit

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// process is a server program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// patience is how long to wait for a server: one of a busy machine may not respond for seconds.
const patience = time.Minute

// start starts a program, and returns when it is ready. It is killed at the end of the test. If it ends before, the
// error has its log.
func start(t testing.TB, cmd *exec.Cmd, log string, ready func() bool) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(p.done) }()
	t.Cleanup(p.Kill)
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.done:
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%v has ended: %s", cmd, text)
		default:
		}
		if ready() {
			return p, nil
		}
	}
	p.Kill()
	return nil, fmt.Errorf("%v is not ready", cmd)
}

// Kill kills the process.
func (p *process) Kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// Freeze stops the process. It keeps its connections and does not respond.
func (p *process) Freeze(t testing.TB) { p.signal(t, "STOP") }

// Thaw continues the process after Freeze.
func (p *process) Thaw(t testing.TB) { p.signal(t, "CONT") }

func (p *process) signal(t testing.TB, name string) {
	t.Helper()
	noError(t, exec.Command("kill", "-"+name, strconv.Itoa(p.cmd.Process.Pid)).Run())
}

// onFreePort calls begin with a port on which no program listens. If another program gets the port first, or has the
// next one, it tries others.
func onFreePort(t testing.TB, begin func(port string) error) {
	t.Helper()
	var err error
	for range 10 {
		l, listenErr := net.Listen("tcp", "127.0.0.1:0")
		noError(t, listenErr)
		l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if err = begin(port); err == nil {
			return
		}
	}
	t.Fatal(err)
}
