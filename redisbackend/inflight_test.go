//go:build unix

package redisbackend_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
)

// Processes hold places while they are killed and stopped, and while Redis is restarted. Each writes what it holds,
// and until when it could still ask Valid, to files that survive it.
const (
	flightProcesses  = 6
	flightGoroutines = 8
	flightHeld       = 20 * time.Millisecond
)

var (
	flightLimit = inflight.Limit{Name: "flight", Max: 10, Lease: time.Second}
	flightTime  = flag.Duration("inflight.time", 12*time.Second, "how long TestPlacesInFlightSurvive runs")
)

// TestMain runs the tests, or is a process that a test has started to hold places.
func TestMain(m *testing.M) {
	url, isProcess := os.LookupEnv("THROTTR_TEST_URL")
	if !isProcess {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, holdPlaces(url, os.Getenv("THROTTR_TEST_DIR")))
	os.Exit(1)
}

// holdPlaces holds places of the server of a URL until the process is killed. It writes what it holds to files.
func holdPlaces(url, dir string) error {
	backend, err := throttr.Open(context.Background(), url+"?lazy=true")
	if err != nil {
		return err
	}
	l := inflight.New(backend, inflight.WithLogger(nil), inflight.WithStrict())
	for g := range flightGoroutines {
		log, err := os.Create(filepath.Join(dir, fmt.Sprintf("held-%d-%d", os.Getpid(), g)))
		if err != nil {
			return err
		}
		go holdAndLog(l, log)
	}
	select {}
}

// holdAndLog holds places, one after the other, and writes from when until when.
func holdAndLog(l *inflight.Limiter, log *os.File) {
	for i := int64(0); ; i++ {
		h, err := l.Acquire(context.Background(), "k", flightLimit, 1)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		begin := time.Now()
		for now := begin; h.Valid(); now = time.Now() {
			var record [16]byte
			binary.LittleEndian.PutUint64(record[:], uint64(begin.UnixNano()))
			binary.LittleEndian.PutUint64(record[8:], uint64(now.UnixNano()))
			if _, err := log.WriteAt(record[:], i*16); err != nil {
				panic(err)
			}
			if now.Sub(begin) >= flightHeld {
				break
			}
			time.Sleep(flightHeld / 5)
		}
		h.Release()
	}
}

// readHeld reads what processes have written.
func readHeld(t *testing.T, dir string) (all []held) {
	files, err := filepath.Glob(filepath.Join(dir, "held-*"))
	noError(t, err)
	for _, file := range files {
		records, err := os.ReadFile(file)
		noError(t, err)
		for ; len(records) >= 16; records = records[16:] {
			h := held{int64(binary.LittleEndian.Uint64(records)), int64(binary.LittleEndian.Uint64(records[8:]))}
			if h.begin != 0 && h.end > h.begin {
				all = append(all, h)
			}
		}
	}
	return all
}

// unreliable is what comes from a connection: at times it is late, and at times it ends, even between a request and
// its response.
type unreliable struct{ io.Reader }

// Read implements io.Reader.
func (u unreliable) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if rand.IntN(100) == 0 {
		time.Sleep(rand.N(flightLimit.Lease / 2))
	}
	if rand.IntN(500) == 0 {
		return 0, io.EOF
	}
	return n, err
}

// flight is a run of processes. One reaches the server by a proxy.
type flight struct {
	t       *testing.T
	s       *testkit.Redis
	proxy   string // its address
	dir     string
	running [flightProcesses]*exec.Cmd
	frozen  [flightProcesses]time.Time // until when
	stopped sync.WaitGroup

	kills, stops, cuts, restarts int
}

// spawn starts a process.
func (f *flight) spawn(i int) {
	url := "redis+unix://" + f.s.Addr
	if i == 0 {
		url = "redis://" + f.proxy
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "THROTTR_TEST_URL="+url, "THROTTR_TEST_DIR="+f.dir)
	cmd.Stderr = new(strings.Builder)
	noError(f.t, cmd.Start())
	f.running[i] = cmd
}

// kill ends a process. What the race detector reports of it, and its panics, are failures of the test.
func (f *flight) kill(i int) {
	f.running[i].Process.Kill()
	f.running[i].Wait()
	written := fmt.Sprint(f.running[i].Stderr)
	expect(f.t, !strings.Contains(written, "DATA RACE") && !strings.Contains(written, "panic: "), "a process: %s", written)
}

// stop stops a process for up to two leases.
func (f *flight) stop(i int) {
	p, d := f.running[i].Process, rand.N(2*flightLimit.Lease)
	f.frozen[i] = time.Now().Add(d + 100*time.Millisecond)
	noError(f.t, p.Signal(syscall.SIGSTOP))
	f.stopped.Go(func() {
		time.Sleep(d)
		p.Signal(syscall.SIGCONT)
	})
}

// run runs processes for some time, with faults.
func (f *flight) run(d time.Duration) {
	for i := range f.running {
		f.spawn(i)
	}
	end, restart := time.Now().Add(d), time.Now().Add(4*time.Second)
	between := 500 * time.Millisecond // each fault costs a lease of a sixth of the places, at most
	if d >= time.Minute {
		between *= 2
	}
	for time.Now().Before(end) {
		time.Sleep(between/2 + rand.N(between))
		i := rand.IntN(flightProcesses)
		if time.Now().Before(f.frozen[i]) {
			continue
		}
		switch rand.IntN(5) {
		case 0, 1:
			f.kill(i)
			f.spawn(i)
			f.kills++
		case 2, 3:
			f.stop(i)
			f.stops++
		default:
			f.s.Must(f.t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			f.cuts++
		}
		if time.Now().After(restart) {
			f.s.Kill()
			f.s.Restart(f.t)
			f.restarts++
			restart = time.Now().Add(15 * time.Second) // each costs a lease
		}
	}
	for i := range f.running {
		f.kill(i)
	}
	f.stopped.Wait()
}

// TestPlacesInFlightSurvive has processes hold places while faults are made.
func TestPlacesInFlightSurvive(t *testing.T) {
	s := testkit.StartRedisOnSocket(t)
	f := &flight{t: t, s: s, dir: t.TempDir()}
	f.proxy = testkit.Proxy(t, func() *testkit.Redis { return s }, func(r io.Reader, _ bool) io.Reader { return unreliable{r} })
	f.run(*flightTime)
	all := readHeld(t, f.dir)
	var sum, first, last int64
	for _, h := range all {
		sum += h.end - h.begin
		if first == 0 || h.begin < first {
			first = h.begin
		}
		last = max(last, h.end)
	}
	most, used := mostHeld(all), float64(sum)/float64(flightLimit.Max)/float64(max(last-first, 1))
	t.Logf("%d kills, %d stops, %d cuts, %d restarts: %d of %d held at most, %.0f %% used", f.kills, f.stops, f.cuts, f.restarts, most, flightLimit.Max, 100*used)
	expect(t, most <= int(flightLimit.Max), "%d of %d places are held", most, flightLimit.Max)
	expect(t, used >= 0.2, "%.0f %% of the places are used", 100*used)
}
