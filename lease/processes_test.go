//go:build unix

package lease_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/lease"
	"github.com/throttr-go/throttr/mockserver"
)

var (
	child    = flag.String("lease.child", "", "be a process of TestRealProcesses that hits the server at this address")
	plain    = flag.Bool("lease.plain", false, "of the processes: without leases")
	logTo    = flag.String("lease.log", "", "of a process: the file for what it was allowed")
	runs     = flag.Int("lease.runs", 1, "runs of TestRealProcesses")
	limit    = flag.Uint64("lease.limit", 20_000, "the limit that the processes share, each half second")
	faults   = flag.Bool("lease.faults", true, "stop and kill processes, and cut connections, in two of three runs")
	duration = flag.Duration("lease.duration", 2*time.Second, "of a run")
)

const realScale = 500 * time.Millisecond

// TestMain is a process of TestRealProcesses if the flag says so.
func TestMain(m *testing.M) {
	flag.Parse()
	if *child != "" {
		if err := hitServer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hitServer hits one key until it is killed or stdin ends. It adds up what it was allowed in each window
// in memory that is a file: the log survives kill -9.
func hitServer() error {
	client, err := throttr.Connect[uint32](context.Background(), throttr.Config{Servers: []string{*child}})
	if err != nil {
		return err
	}
	var backend throttr.Backend = client.Backend()
	var leases *lease.Backend
	if !*plain {
		leases = lease.New(backend, lease.WithAge(50*time.Millisecond))
		backend = leases
	}
	file, err := os.OpenFile(*logTo, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Truncate(logSize); err != nil {
		return err
	}
	counts, err := syscall.Mmap(int(file.Fd()), 0, logSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	limiter := throttr.NewRateLimit(backend)
	var hits atomic.Uint64
	var callers sync.WaitGroup
	stop := make(chan struct{})
	epoch := time.Unix(0, 0)
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				begun := time.Now()
				res, err := limiter.Hit(context.Background(), key, realScale, *limit)
				hits.Add(1)
				switch {
				case err != nil || !res.Allowed:
				case time.Since(begun) > realScale/8:
					mark(counts, 0) // the process was stopped, so its ResetAt is too late
				default:
					mark(counts, res.ResetAt.Sub(epoch))
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(stop)
	callers.Wait()
	if leases != nil {
		leases.Close()
	}
	client.Close()
	fmt.Println(hits.Load())
	return nil
}

// The log has a counter for each interval of the end of the window. Ends of one window differ by its
// precision and the time of the round trip; those of different windows by a scale at least.
const (
	binTime = 10 * time.Millisecond
	bins    = 1 << 16
	logSize = 8 * bins
)

var marking sync.Mutex // guards the counters of the process

func mark(counts []byte, end time.Duration) {
	marking.Lock()
	defer marking.Unlock()
	at := counts[8*(int(end/binTime)%bins):]
	binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)+1)
}

// TestRealProcesses lets processes hit one key of a mock server by real clocks. Some are stopped across the end of
// windows, and some killed; their connections are cut. What their logs say they were allowed exceeds the
// limit in no window.
func TestRealProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for run := range *runs {
		srv := mockserver.RunT(t, mockserver.WithValueSize(codec.Size[uint32]()))
		testRealProcesses(t, srv, run)
	}
}

func testRealProcesses(t *testing.T, srv *mockserver.Server, run int) {
	const processes = 8
	dir := t.TempDir()
	type process struct {
		cmd   *exec.Cmd
		stdin io.Closer
		out   *bufio.Reader
		log   string
	}
	var all []process
	for i := range processes {
		p := process{log: filepath.Join(dir, fmt.Sprint(i))}
		p.cmd = exec.Command(os.Args[0], "-lease.child="+srv.Addr(), "-lease.log="+p.log, fmt.Sprintf("-lease.plain=%v", *plain), fmt.Sprintf("-lease.limit=%d", *limit))
		stdin, err := p.cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := p.cmd.StdoutPipe()
		require.NoError(t, err)
		p.stdin, p.out, p.cmd.Stderr = stdin, bufio.NewReader(stdout), os.Stderr
		require.NoError(t, p.cmd.Start())
		all = append(all, p)
	}
	time.Sleep(*duration / 2)
	requests := srv.Requests(codec.OpUpdate) + srv.Requests(codec.OpQuery)
	if *faults && run%3 != 2 {
		require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGSTOP))
		require.NoError(t, all[1].cmd.Process.Kill())
		srv.Disconnect()
		time.Sleep(realScale)
		require.NoError(t, all[0].cmd.Process.Signal(syscall.SIGCONT))
	}
	time.Sleep(*duration / 2)
	requests = srv.Requests(codec.OpUpdate) + srv.Requests(codec.OpQuery) - requests
	hits := uint64(0)
	for _, p := range all {
		p.stdin.Close()
	}
	for _, p := range all {
		var n uint64
		_, _ = fmt.Fscan(p.out, &n) // none of one that was killed
		hits += n
		_ = p.cmd.Wait()
	}
	sums := make([]uint64, bins)
	for _, p := range all {
		counts, err := os.ReadFile(p.log)
		require.NoError(t, err)
		for i := 0; i+8 <= len(counts); i += 8 {
			sums[i/8] += binary.LittleEndian.Uint64(counts[i:])
		}
	}
	windows, allowed, worst := 0, uint64(0), uint64(0)
	const across = int(realScale / binTime / 2) // ends of one window are in fewer bins
	for i := 1; i < bins; i++ {
		if sums[i] == 0 {
			continue
		}
		sum := uint64(0)
		for j := i; j < min(i+across, bins); j++ {
			sum += sums[j]
			sums[j] = 0
		}
		require.LessOrEqual(t, sum, *limit, "run %d", run)
		windows, allowed, worst = windows+1, allowed+sum, max(worst, sum)
	}
	require.Greater(t, windows, 1)
	t.Logf("run %d: %d hits, %d allowed in %d windows, at most %d; %d allowed late; %d requests in the second half", run, hits, allowed, windows, worst, sums[0], requests)
}
