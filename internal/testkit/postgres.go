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
)

// Postgres is a server on a port of 127.0.0.1, with the role postgres, who needs no password.
type Postgres struct {
	Addr string
	Data string // the folder of its data

	dir      string
	programs string              // the folder of the programs
	options  string              // of the server
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
	dir, err := os.MkdirTemp("", "postgres") // not t.TempDir, which others may not enter
	NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Postgres{Data: filepath.Join(dir, "data"), programs: postgresPrograms(t), dir: dir}
	if os.Geteuid() == 0 { // the server refuses to run as root
		nobody, err := user.Lookup("nobody")
		NoError(t, err)
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		NoError(t, os.Chown(dir, uid, gid))
	}
	NoError(t, s.run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"))
	onFreePort(t, func(port string) error {
		s.Addr = "127.0.0.1:" + port
		s.options = fmt.Sprintf("-h 127.0.0.1 -p %s -k %s -F", port, dir)
		for _, setting := range settings {
			s.options += " -c " + setting
		}
		return s.begin()
	})
	t.Cleanup(s.Kill)
	return s
}

// URL returns the URL of the database, with parameters such as "lazy=true".
func (s *Postgres) URL(parameters ...string) string {
	return "postgres://postgres@" + s.Addr + "/postgres?" + strings.Join(append(parameters, "sslmode=disable"), "&")
}

// run runs a program on the data of the server, as the user of the server.
func (s *Postgres) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.programs, name), append(args, "-D", s.Data)...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w: %s%s", cmd, err, output, read(filepath.Join(s.dir, "log")))
	}
	return nil
}

// begin starts the server, and returns when it accepts connections.
func (s *Postgres) begin() error { return s.run("pg_ctl", "start", "-l", "log", "-o", s.options) }

// Kill ends the server at once, as a crash does.
func (s *Postgres) Kill() { s.stop("immediate") }

// Stop ends the server as an operator does: connections are closed, and nothing is lost.
func (s *Postgres) Stop() { s.stop("fast") }

func (s *Postgres) stop(mode string) {
	s.Thaw()
	s.run("pg_ctl", "stop", "-m", mode) // it fails if there is no server
}

// Restart starts a server again that was ended.
func (s *Postgres) Restart(t testing.TB) {
	t.Helper()
	NoError(t, s.begin())
}

// Freeze stops all processes of the server. They keep their connections and do not respond.
func (s *Postgres) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw continues them after Freeze.
func (s *Postgres) Thaw() { s.signal(syscall.SIGCONT) }

// signal signals all processes of the server, the first one first: it can't start others then.
func (s *Postgres) signal(sig syscall.Signal) {
	for _, pid := range s.Processes() {
		syscall.Kill(pid, sig)
	}
}

// Processes returns the ids of all processes of the server. The first one has started the others.
func (s *Postgres) Processes() (pids []int) {
	first, _, _ := strings.Cut(read(filepath.Join(s.Data, "postmaster.pid")), "\n")
	for _, process := range strings.Fields(first + " " + read("/proc/"+first+"/task/"+first+"/children")) {
		if pid, err := strconv.Atoi(process); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
