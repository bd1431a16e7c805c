//go:build unix

package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Postgres is a server on a port of 127.0.0.1, with the role postgres, who needs no password.
type Postgres struct {
	Addr string

	*process
	port     string
	dir      string
	programs string // the folder of the programs
	settings []string
	as       *syscall.Credential // nil: the user of the test
}

// postgresPrograms returns the folder of the server's programs: $THROTTR_POSTGRES, that of PATH, or the newest of
// Debian's packages. Without one, the test is skipped.
func postgresPrograms(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("THROTTR_POSTGRES"); dir != "" {
		return dir
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/[1-9][0-9]/bin") // in their order
	if len(dirs) == 0 {
		t.Skip("PostgreSQL is not installed")
	}
	return dirs[len(dirs)-1]
}

// StartPostgres starts a server with settings such as "default_transaction_isolation=serializable". It ends with the
// test, and its data are not written to the disk.
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	s := &Postgres{programs: postgresPrograms(t), settings: settings}
	var err error
	s.dir, err = os.MkdirTemp("", "postgres") // not t.TempDir, which others may not enter
	noError(t, err)
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	if os.Geteuid() == 0 { // the server refuses to run as root
		s.as = otherUser(t)
		noError(t, os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)))
	}
	data := filepath.Join(s.dir, "data")
	output, err := s.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, output)
	}
	onFreePort(t, func(port string) error {
		s.port = port
		s.Addr = "127.0.0.1:" + port
		return s.begin(t)
	})
	return s
}

// otherUser returns a user who is not root.
func otherUser(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
	return nil
}

// URL returns the URL of the database, with parameters such as "lazy=true".
func (s *Postgres) URL(parameters ...string) string {
	return "postgres://postgres@" + s.Addr + "/postgres?" + strings.Join(append(parameters, "sslmode=disable"), "&")
}

// command returns a command of the user of the server.
func (s *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// begin starts the server, and returns when it accepts connections.
func (s *Postgres) begin(t testing.TB) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	noError(t, err)
	defer log.Close()
	args := []string{"-D", filepath.Join(s.dir, "data"), "-p", s.port, "-k", s.dir, "-h", "127.0.0.1", "-F"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	cmd.Stdout = log
	cmd.Stderr = log
	s.process, err = start(t, cmd, log.Name(), func() bool {
		text, _ := os.ReadFile(log.Name())
		return strings.Contains(string(text), "ready to accept")
	})
	if err == nil {
		t.Cleanup(s.Kill)
	}
	return err
}

// Kill ends the server at once, as a crash does.
func (s *Postgres) Kill() { s.stop(syscall.SIGQUIT) }

// Stop ends the server as an operator does: connections are closed, and nothing is lost.
func (s *Postgres) Stop() { s.stop(syscall.SIGINT) }

func (s *Postgres) stop(sig syscall.Signal) {
	s.signal(syscall.SIGCONT)
	s.cmd.Process.Signal(sig)
	select {
	case <-s.done:
	case <-time.After(patience):
		s.process.Kill()
	}
}

// Restart starts a server again that was ended.
func (s *Postgres) Restart(t testing.TB) {
	t.Helper()
	noError(t, s.begin(t))
}

// RestartAsReplica starts a server again that was ended, as a replica, which only reads.
func (s *Postgres) RestartAsReplica(t testing.TB) {
	t.Helper()
	noError(t, os.WriteFile(filepath.Join(s.dir, "data", "standby.signal"), nil, 0o644))
	s.Restart(t)
}

// Freeze stops all processes of the server. They keep their connections and do not respond.
func (s *Postgres) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw continues them after Freeze.
func (s *Postgres) Thaw() { s.signal(syscall.SIGCONT) }

// signal signals all processes of the server, the first one first: it can't start others then.
func (s *Postgres) signal(sig syscall.Signal) {
	s.cmd.Process.Signal(sig)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", s.cmd.Process.Pid))
	for _, child := range strings.Fields(string(children)) {
		pid, _ := strconv.Atoi(child)
		syscall.Kill(pid, sig)
	}
}
