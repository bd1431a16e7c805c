//go:build unix

package redisbackend_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/redisbackend"
)

// Processes hold places while they are killed and stopped, and while Redis is restarted. Each writes what it holds,
// and until when it could still ask Valid, to files that survive it.
const (
	flightProcesses  = 6
	flightGoroutines = 8
	flightHeld       = 20 * time.Millisecond
	flightVariable   = "THROTTR_FLIGHT" // the orders of a process
)

// orders are what a process does.
type orders struct {
	Addrs      []string // of Redis: a socket, or the nodes of a cluster
	Dir        string
	Strict     bool
	Goroutines int
	Held       time.Duration
	Limit      inflight.Limit
}

// start starts a process that holds places.
func (o orders) start(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(o)
	noError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFlightProcess$")
	cmd.Env = append(os.Environ(), flightVariable+"="+string(text))
	noError(t, cmd.Start())
	return cmd
}

// connect connects as soon as Redis is there.
func (o orders) connect() rueidis.Client {
	for {
		option := rueidis.ClientOption{InitAddress: o.Addrs, DisableCache: true}
		if strings.HasPrefix(o.Addrs[0], "/") {
			option.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return d.DialContext(ctx, "unix", o.Addrs[0])
			}
		}
		client, err := rueidis.NewClient(option)
		if err == nil {
			return client
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var (
	flightLimit = inflight.Limit{Name: "flight", Max: 10, Lease: time.Second}
	flightTime  = flag.Duration("inflight.time", 12*time.Second, "how long TestPlacesInFlightSurvive runs")
)

// TestFlightProcess is a process of TestPlacesInFlightSurvive. Otherwise it does nothing.
func TestFlightProcess(t *testing.T) {
	text := os.Getenv(flightVariable)
	if text == "" {
		return
	}
	var o orders
	noError(t, json.Unmarshal([]byte(text), &o))
	client := o.connect()
	backend := redisbackend.New(client)
	opts := []inflight.Option{inflight.WithLogger(nil)}
	if o.Strict {
		opts = append(opts, inflight.WithStrict())
	}
	l := inflight.New(backend, opts...)
	for g := range o.Goroutines {
		log, err := os.Create(filepath.Join(o.Dir, fmt.Sprintf("held-%d-%d", os.Getpid(), g)))
		noError(t, err)
		go o.hold(l, log)
	}
	select {} // until it is killed
}

// hold holds places, one after the other, and writes from when until when.
func (o orders) hold(l *inflight.Limiter, log *os.File) {
	for i := int64(0); ; i++ {
		h, err := l.Acquire(context.Background(), "k", o.Limit, 1)
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		begin := time.Now()
		for {
			now := time.Now()
			if !h.Valid() {
				break
			}
			var record [16]byte
			binary.LittleEndian.PutUint64(record[:], uint64(begin.UnixNano()))
			binary.LittleEndian.PutUint64(record[8:], uint64(now.UnixNano()))
			if _, err := log.WriteAt(record[:], i*16); err != nil {
				panic(err)
			}
			left := o.Held - now.Sub(begin)
			if left <= 0 {
				break
			}
			time.Sleep(min(left, o.Held/5, 5*time.Millisecond))
		}
		h.Release()
	}
}

// slowProxy is a proxy in front of a server that is late at times, in each direction for itself, and at times ends
// a connection, even between a request and its response.
type slowProxy struct {
	addr          string
	delayed, ends atomic.Int64
}

// startSlowProxy starts a proxy that ends with the test.
func startSlowProxy(t testing.TB, s *testkit.Redis) *slowProxy {
	p := &slowProxy{addr: s.Addr + "-slow"}
	l, err := net.Listen("unix", p.addr)
	noError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for client, err := l.Accept(); err == nil; client, err = l.Accept() {
			server, err := s.Dial(context.Background(), &net.Dialer{})
			if err != nil {
				client.Close()
				continue
			}
			go p.forward(client, server)
			go p.forward(server, client)
		}
	}()
	return p
}

// forward forwards in one direction.
func (p *slowProxy) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	for buf := make([]byte, 64<<10); ; {
		n, err := from.Read(buf)
		switch {
		case err != nil:
			return
		case rand.IntN(500) == 0:
			p.ends.Add(1)
			return
		case rand.IntN(100) == 0:
			p.delayed.Add(1)
			time.Sleep(rand.N(flightLimit.Lease / 2))
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// flight is a run of processes. One reaches the server by a proxy.
type flight struct {
	t       *testing.T
	s       *testkit.Redis
	proxy   *slowProxy
	dir     string
	running []*exec.Cmd
	random  *rand.Rand

	kills, stops, restarts, cuts int
	longStops                    int // stops of a lease or more
}

// spawn starts a process.
func (f *flight) spawn(i int) {
	addr := f.s.Addr
	if i == 0 {
		addr = f.proxy.addr
	}
	f.running[i] = orders{[]string{addr}, f.dir, true, flightGoroutines, flightHeld, flightLimit}.start(f.t)
}

func (f *flight) kill(i int) {
	f.running[i].Process.Kill()
	f.running[i].Wait()
}

// run runs processes for some time, with faults.
func (f *flight) run(d time.Duration) {
	f.running = make([]*exec.Cmd, flightProcesses)
	for i := range f.running {
		f.spawn(i)
	}
	defer func() {
		for i := range f.running {
			f.kill(i)
		}
	}()
	var stopped sync.WaitGroup
	defer stopped.Wait()
	end := time.Now().Add(d)
	const pause = 15 * time.Second    // between restarts: each costs a lease
	between := 500 * time.Millisecond // kills, stops and cuts: each of these costs a lease of a sixth of the places, at most
	if d >= time.Minute {
		between *= 2
	}
	restart := time.Now().Add(4 * time.Second)
	frozen := make([]time.Time, flightProcesses)
	for time.Now().Before(end) {
		time.Sleep(between/2 + time.Duration(f.random.Int64N(int64(between))))
		i := f.random.IntN(flightProcesses)
		if time.Now().Before(frozen[i]) {
			continue
		}
		switch f.random.IntN(5) {
		case 0, 1:
			f.kill(i)
			f.spawn(i)
			f.kills++
		case 2, 3:
			p, long := f.running[i].Process, time.Duration(f.random.Int64N(int64(2*flightLimit.Lease)))
			frozen[i] = time.Now().Add(long + 100*time.Millisecond)
			noError(f.t, p.Signal(syscall.SIGSTOP))
			stopped.Go(func() {
				time.Sleep(long)
				p.Signal(syscall.SIGCONT)
			})
			f.stops++
			if long >= flightLimit.Lease {
				f.longStops++
			}
		case 4:
			if conn, err := f.s.Dial(context.Background(), &net.Dialer{}); err == nil {
				fmt.Fprint(conn, "CLIENT KILL TYPE normal SKIPME yes\r\n")
				time.Sleep(20 * time.Millisecond)
				conn.Close()
				f.cuts++
			}
		}
		if time.Now().After(restart) {
			f.s.Kill()
			f.s.Restart(f.t)
			f.restarts++
			restart = time.Now().Add(pause)
		}
	}
}

// held is a time during which a place was held.
type held struct{ begin, end int64 }

// result returns the most places that were held at a time, and how much of them was used.
func (f *flight) result() (most int, used float64) {
	all := readHeld(f.t, f.dir)
	var sum, first, last int64
	for _, h := range all {
		sum += h.end - h.begin
		if first == 0 || h.begin < first {
			first = h.begin
		}
		last = max(last, h.end)
	}
	return mostHeld(all), float64(sum) / float64(flightLimit.Max) / float64(max(last-first, 1))
}

// readHeld reads what processes have written.
func readHeld(t testing.TB, dir string) (all []held) {
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

// mostHeld returns the most places that were held at a time.
func mostHeld(all []held) (most int) {
	most, _ = overHeld(all, 0)
	return most
}

// overHeld returns the most places that were held at a time, and for how long more than a limit were.
func overHeld(all []held, limit int) (most int, over time.Duration) {
	type change struct{ at, by int64 }
	var changes []change
	for _, h := range all {
		changes = append(changes, change{h.begin, 1}, change{h.end, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, last := 0, int64(0)
	for _, c := range changes {
		if now > limit {
			over += time.Duration(c.at - last)
		}
		now += int(c.by)
		last = c.at
		most = max(most, now)
	}
	return most, over
}

// fly runs processes. It returns how many places were held at most, and which part of what faults leave was used.
func fly(t *testing.T, d time.Duration) (most int, used float64) {
	s := testkit.StartRedisOnSocket(t)
	f := &flight{t: t, s: s, proxy: startSlowProxy(t, s), dir: t.TempDir(), random: rand.New(rand.NewPCG(rand.Uint64(), 1))}
	f.run(d)
	most, used = f.result()
	// What a process holds that is killed, or stopped for a lease or more, and all places after a restart, are of no
	// use for a lease: that is what these faults cost.
	cost := (float64(f.kills+f.longStops)/flightProcesses + float64(f.restarts)) * flightLimit.Lease.Seconds() / d.Seconds()
	t.Logf("%d kills, %d stops, %d restarts, %d cuts, %d messages delayed, %d connections ended: %d of %d held at most, %.0f %% used; faults cost %.0f %%, %.0f %% of the rest are used",
		f.kills, f.stops, f.restarts, f.cuts, f.proxy.delayed.Load(), f.proxy.ends.Load(), most, flightLimit.Max, 100*used,
		100*cost, 100*used/(1-cost))
	if d >= time.Minute { // a short run may have too few messages
		expect(t, f.proxy.delayed.Load() > 0 && f.proxy.ends.Load() > 0, "the proxy does nothing")
	}
	return most, used / (1 - cost)
}

// TestPlacesInFlightSurvive has processes hold places while faults are made.
//
//evidence:redis Never more than Max places in flight, whatever is killed, stopped and restarted
func TestPlacesInFlightSurvive(t *testing.T) {
	most, used := fly(t, *flightTime)
	expect(t, most <= int(flightLimit.Max), "%d of %d places are held", most, flightLimit.Max)
	enough := 0.7
	if *flightTime < time.Minute {
		enough = 0.3 // the start, and a restart, are much of it
	}
	expect(t, used >= enough, "%.0f %% of the places that can be are used", 100*used)
}
