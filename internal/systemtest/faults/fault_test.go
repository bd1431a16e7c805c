package faults_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

var faultTable = flag.String("fault.table", "", "the `file` whose tables are written anew, instead of compared with what is found")

// A trial of a fault is rounds of calls. The fault begins and ends within a round, while
// calls are under way.
const (
	trialRounds  = 16
	trialRound   = time.Second
	faultBegins  = 4*trialRound + 4600*time.Microsecond
	faultEnds    = 10*trialRound + 4600*time.Microsecond
	trialHealthy = 13 // the round from which on all must be well again

	callsPerRound = 8
	callEvery     = time.Millisecond
	answerAfter   = 3300 * time.Microsecond
	stallAfter    = 400 * time.Millisecond
	lateAfter     = 50 * time.Millisecond
)

// callDeadlines are those of calls: every other one has none before a stall is noticed. Hits
// wait for the backend for no longer than hitTimeout, which is before either.
var callDeadlines = [2]time.Duration{300 * time.Millisecond, 700 * time.Millisecond}

// fault is something that befalls a server or the way to it. Begin makes it happen, and
// returns what ends it, nil if it is over at once.
type fault struct {
	name   string
	begin  func(x *trial) (end func())
	shifts bool // it shifts answers, so that some can be wrong
	opts   []mockserver.Option
}

func inject(f mockserver.Fault) func(*trial) func() {
	return func(x *trial) func() { return x.inject(f) }
}

func cut(d mockserver.Direction, after int) func(*trial) func() {
	return func(x *trial) func() { return x.srv.Cut(mockserver.Cut{Direction: d, After: after}) }
}

var faults = []fault{
	{name: "none", begin: func(*trial) func() { return nil }},
	{name: "answers delayed by 50 ms", begin: inject(mockserver.Fault{Delay: 50 * time.Millisecond})},
	{name: "answers delayed beyond the deadline", begin: inject(mockserver.Fault{Delay: 333 * time.Millisecond})},
	{name: "answers split into bytes", begin: func(x *trial) func() {
		x.srv.Split(1)
		return func() { x.srv.Split(0) }
	}},
	{name: "answers dropped, all", begin: inject(mockserver.Fault{Drop: true})},
	{name: "answers dropped, each 50th", begin: each50th(mockserver.Fault{Drop: true}), shifts: true},
	{name: "answers duplicated, all", begin: inject(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "answers duplicated, each 50th", begin: each50th(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "garbage for an answer", begin: inject(mockserver.Fault{Replace: []byte{0xde, 0xad, 0xbe, 0xef}})},
	{name: "an answer to nothing", begin: func(x *trial) func() {
		time.Sleep(trialRound / 2) // nothing is under way then
		return x.every(trialRound, func() { x.srv.Send([]byte{1}) })
	}},
	{name: "connections half-open", begin: func(x *trial) func() { return x.every(trialRound, x.srv.HalfOpen) }},
	{name: "connections refused", begin: func(x *trial) func() {
		x.srv.Refuse(true)
		x.srv.Disconnect()
		return func() { x.srv.Refuse(false) }
	}},
	{name: "connections end", begin: func(x *trial) func() { return x.every(trialRound, x.srv.Disconnect) }},
	{name: "connections end after 300 bytes from the client", begin: cutNow(mockserver.FromClient, 300)},
	{name: "connections end after 40 bytes to the client", begin: cutNow(mockserver.ToClient, 40)},
	{name: "restart with data", begin: func(x *trial) func() { return x.restart(true) }},
	{name: "restart without data", begin: func(x *trial) func() { return x.restart(false) }},
	{name: "another value size after a restart", begin: func(x *trial) func() {
		x.recompile(1)
		return func() { x.recompile(2) }
	}},
	{name: "an EVENT storm", begin: func(x *trial) func() { return x.every(time.Millisecond, x.storm(20)) }},
	{name: "more than 1024 due", begin: func(x *trial) func() { return x.every(trialRound, x.storm(1500)) },
		opts: []mockserver.Option{mockserver.WithHazard(mockserver.Overflow, true)}},
}

// each50th has a fault befall one answer in 50.
func each50th(f mockserver.Fault) func(*trial) func() {
	f.Times = 1
	return func(x *trial) func() {
		var ends []func()
		for i := range 10 {
			f.Skip = 50 * i
			ends = append(ends, x.inject(f))
		}
		return func() {
			for _, end := range ends {
				end()
			}
		}
	}
}

// cutNow is cut that befalls all connections: it ends those there are, and at its end those
// that are yet to be cut.
func cutNow(d mockserver.Direction, after int) func(*trial) func() {
	return func(x *trial) func() {
		end := cut(d, after)(x)
		x.srv.Disconnect()
		return func() {
			end()
			x.srv.Disconnect()
		}
	}
}

// cell is what came of the calls of a trial.
type cell struct {
	calls, right, decided int
	errors                map[string]int
	wrong                 int // answers that were not those to the request
	twice                 int // executions of a request beyond the first
	late                  int // calls that outlived their deadline by more than lateAfter
	left                  int // goroutines when the client was closed
	untrue                int // errors that say "not sent" of what was executed
	unhealthy             int // calls without a right answer long after the fault
}

// trial is a server that a fault befalls, and a client that makes calls of one kind.
type trial struct {
	*testing.T
	srv     *mockserver.Server
	client  *throttr.Client[uint16]
	truth   truth
	within  time.Duration // by when a call must be over, whatever its ctx says; 0: no matter
	latency func()        // removes the latency that every answer has

	mu   sync.Mutex
	cell cell
}

func newTrial(t *testing.T, f fault) *trial {
	x := &trial{T: t, cell: cell{errors: map[string]int{}}}
	x.srv = testkit.InMemory(t, append(f.opts, mockserver.WithObserver(x.truth.observe))...)
	x.inject(mockserver.Fault{Times: 1}) // of no consequence: there is a latency from now on
	x.client = testkit.Connect[uint16](t, x.srv, testkit.Over(x.srv, throttr.Config{
		MaxConns: 1, StallTimeout: stallAfter, ConnectTimeout: stallAfter,
		RetryPause: 20 * time.Millisecond, MaxRetryPause: 80 * time.Millisecond,
	}))
	return x
}

// inject makes f happen, before the latency does: of several, the first happens.
func (x *trial) inject(f mockserver.Fault) (remove func()) {
	if x.latency != nil {
		x.latency()
	}
	if f.Delay == 0 {
		f.Delay = answerAfter
	}
	remove = x.srv.Inject(f)
	x.latency = x.srv.Inject(mockserver.Fault{Delay: answerAfter})
	return remove
}

// every has f called now and then again and again, until it is told to stop.
func (x *trial) every(d time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			f()
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

func (x *trial) restart(keepData bool) func() {
	require.NoError(x, x.srv.Restart(keepData))
	return nil
}

func (x *trial) recompile(size int) { require.NoError(x, x.srv.Recompile(size)) }

// storm publishes n messages to everybody.
func (x *trial) storm(n int) func() {
	return func() {
		for range n {
			x.srv.Publish("storm", []byte("!"))
		}
	}
}

// verdict is what an answer is worth.
type verdict int

const (
	rightAnswer verdict = iota
	wrongAnswer
	byPolicy // there was none, and a policy has decided
)

// call makes the n-th call of a kind. If it fails, executed tells whether the server has
// executed any of it.
type call func(ctx context.Context, n int) (v verdict, executed bool, err error)

// run makes all calls, lets the fault happen, and returns what came of it.
func (x *trial) run(f fault, op operation) cell {
	made, end := op.start(x)
	var calls sync.WaitGroup
	calls.Go(func() {
		time.Sleep(faultBegins)
		if stop := f.begin(x); stop != nil {
			time.Sleep(faultEnds - faultBegins)
			stop()
		}
	})
	for n := range trialRounds * callsPerRound {
		calls.Go(func() {
			round := n / callsPerRound
			time.Sleep(time.Duration(round)*trialRound + time.Duration(n%callsPerRound)*callEvery)
			x.make(made, n, round >= trialHealthy)
		})
	}
	calls.Wait()
	x.client.Close()
	synctest.Wait()
	x.cell.left = len(testkit.Stacks())
	end()
	return x.cell
}

// make makes a call and judges what comes of it.
func (x *trial) make(made call, n int, healthy bool) {
	deadline := callDeadlines[n%2]
	ctx, cancel := context.WithTimeout(x.Context(), deadline)
	defer cancel()
	begun := time.Now()
	v, executed, err := made(ctx, n)
	took := time.Since(begun)
	x.mu.Lock()
	defer x.mu.Unlock()
	c := &x.cell
	c.calls++
	switch {
	case err != nil:
		c.errors[testkit.ErrorClass(x, err)]++
		if throttr.SafeToRetry(err) && executed {
			c.untrue++
		}
	case v == wrongAnswer:
		c.wrong++
	case v == byPolicy:
		c.decided++
	default:
		c.right++
	}
	if x.within > 0 {
		deadline = min(deadline, x.within)
	}
	if took > deadline+lateAfter {
		c.late++
	}
	if healthy && (err != nil || v != rightAnswer) {
		c.unhealthy++
	}
}

// truth is what a server has executed.
type truth struct {
	mu     sync.Mutex
	execs  map[string][]mockserver.Exec // by op and key, without the requests
	places map[place]int                // how often the server gave each place in the count of a window
	counts map[string]int               // how much was counted, by the key of the window
}

// place is one in the count of a key's window.
type place struct {
	key   string
	count uint64
}

func (tr *truth) observe(e mockserver.Exec) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.execs == nil {
		tr.execs, tr.places, tr.counts = map[string][]mockserver.Exec{}, map[place]int{}, map[string]int{}
	}
	switch r := e.Request.(type) {
	case codec.Subscribe:
		e.Key = fmt.Sprintf("%s on %d", r.Channel, e.Conn)
	case codec.Update[uint16]:
		if part := strings.SplitN(e.Key, ":", 4); len(part) == 4 && e.Status { // rl:scale:bucket:key
			tr.counts[part[3]] += int(r.Value)
			for i := range uint64(r.Value) {
				tr.places[place{part[3], e.Quota - i}]++
			}
		}
	}
	e.Request = nil // its bytes are the server's
	id := e.Op.String() + " " + e.Key
	tr.execs[id] = append(tr.execs[id], e)
}

// gave returns how often the server gave a place, and counted how much it has counted.
func (tr *truth) gave(p place) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.places[p]
}

func (tr *truth) counted(key string) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.counts[key]
}

// of returns the executions of a request.
func (tr *truth) of(op codec.Op, key string) []mockserver.Exec {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.execs[op.String()+" "+key]
}

// answered reports whether ok, and of a QUERY quota, is what the last execution of a
// request has answered.
func (tr *truth) answered(op codec.Op, key string, ok bool, quota uint16) bool {
	all := tr.of(op, key)
	if len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return ok == last.Status && (op != codec.OpQuery || uint64(quota) == last.Quota)
}

// repeated returns how many executions of some requests there were beyond the first.
func (tr *truth) repeated(ops ...codec.Op) (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for id, all := range tr.execs {
		for _, op := range ops {
			if strings.HasPrefix(id, op.String()+" ") {
				n += len(all) - 1
			}
		}
	}
	return n
}

// String is a row of the table, from the second column on.
func (c cell) String() string {
	var errs []string
	for _, k := range []string{"deadline", "stalled", "lost", "protocol", "connect", "unavailable", "value size"} {
		if n := c.errors[k]; n > 0 {
			errs = append(errs, strconv.Itoa(n)+" "+k)
		}
	}
	return fmt.Sprintf("%d | %d | %d | %s | %d | %d | %d | %d", c.calls, c.right, c.decided, strings.Join(errs, ", "), c.wrong, c.twice, c.late, c.left)
}

// TestFaults lets each fault befall each kind of call. What must hold holds whatever the
// figures, of which some vary by a few from run to run.
func TestFaults(t *testing.T) {
	var table strings.Builder
	for _, op := range operations {
		fmt.Fprintf(&table, "\n### %s\n\n", op.name)
		table.WriteString("| fault | calls | right | by policy | errors | wrong | twice | late | left |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, f := range faults {
			t.Run(op.name+"/"+f.name, func(t *testing.T) {
				var c cell
				synctest.Test(t, func(t *testing.T) { c = newTrial(t, f).run(f, op) })
				fmt.Fprintf(&table, "| %s | %v |\n", f.name, c)
				require.Equal(t, trialRounds*callsPerRound, c.calls)
				if !f.shifts {
					require.Zero(t, c.wrong, "wrong answers")
				}
				require.Zero(t, c.twice, "requests that were executed twice")
				require.Zero(t, c.late, "calls that outlived their deadline")
				require.Zero(t, c.left, "goroutines that are left")
				require.Zero(t, c.untrue, "errors that are not true")
				require.Zero(t, c.unhealthy, "calls long after the fault")
			})
		}
	}
	if !t.Failed() {
		document(t, "faults", table.String())
	}
}

// document writes what a test has found to the file that a flag names, between the marks
// of a name. Without the flag, it requires that the documentation has such lines: the
// same up to the figures.
func document(t *testing.T, name, found string) {
	t.Helper()
	file := *faultTable
	if file == "" {
		file = "../../../docs/reliability.md"
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, begins := strings.Cut(string(text), "<!-- "+name+" -->\n")
	old, after, ends := strings.Cut(rest, "<!-- /"+name+" -->\n")
	require.True(t, begins && ends, "%s has no marks of %s", file, name)
	if *faultTable == "" {
		require.Equal(t, labels(old), labels(found), "go test -run Fault -fault.table=docs/reliability.md . writes it anew")
		return
	}
	text = fmt.Appendf(nil, "%s<!-- %s -->\n%s<!-- /%s -->\n%s", before, name, found, name, after)
	require.NoError(t, os.WriteFile(file, text, 0o644))
}

// labels returns headlines and the first column of tables.
func labels(text string) (all []string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); len(cells) > 1 || strings.HasPrefix(line, "#") {
			all = append(all, cells[0])
		}
	}
	return all
}
