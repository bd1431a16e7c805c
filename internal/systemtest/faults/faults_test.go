// Package faults_test subjects each kind of call to each fault of a server or of the network, and
// counts what the calls return. It also shows that a shift of responses is noticed, and how limits
// behave during an outage.
package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/slot"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
	"github.com/throttr-go/throttr/pubsub"
)

// fault is a misbehavior of a server or of the network. begin starts it and returns the function
// that ends it, or nil if it ends by itself.
type fault struct {
	name   string
	begin  func(s *scenario) (end func())
	shifts bool // it shifts responses, so that some requests get a wrong one
	opts   []mockserver.Option
}

var faults = []fault{
	{name: "none", begin: func(*scenario) func() { return nil }},
	{name: "responses delayed by 50 ms", begin: inject(mockserver.Fault{Delay: 50 * time.Millisecond})},
	{name: "responses delayed beyond the deadline", begin: inject(mockserver.Fault{Delay: 333 * time.Millisecond})},
	{name: "responses split into bytes", begin: func(s *scenario) func() {
		s.srv.Split(1)
		return func() { s.srv.Split(0) }
	}},
	{name: "all responses dropped", begin: inject(mockserver.Fault{Drop: true})},
	{name: "each 50th response dropped", begin: injectEach50th(mockserver.Fault{Drop: true}), shifts: true},
	{name: "all responses duplicated", begin: inject(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "each 50th response duplicated", begin: injectEach50th(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "garbage instead of a response", begin: inject(mockserver.Fault{Replace: []byte{0xde, 0xad, 0xbe, 0xef}})},
	{name: "an unsolicited response", begin: func(s *scenario) func() {
		time.Sleep(roundLength / 2) // between the rounds, when no call is in progress
		return s.every(roundLength, func() { s.srv.Send([]byte{1}) })
	}},
	{name: "connections half-open", begin: func(s *scenario) func() { return s.every(roundLength, s.srv.HalfOpen) }},
	{name: "connections refused", begin: func(s *scenario) func() {
		s.srv.Refuse(true)
		s.srv.Disconnect()
		return func() { s.srv.Refuse(false) }
	}},
	{name: "connections end", begin: func(s *scenario) func() { return s.every(roundLength, s.srv.Disconnect) }},
	{name: "connections end after 400 bytes from the client", begin: cut(mockserver.FromClient, 400)},
	{name: "connections end after 40 bytes to the client", begin: cut(mockserver.ToClient, 40)},
	{name: "restart with data", begin: restart(true)},
	{name: "restart without data", begin: restart(false)},
	{name: "restart with another value size", begin: func(s *scenario) func() {
		require.NoError(s, s.srv.Recompile(1))
		return func() { require.NoError(s, s.srv.Recompile(2)) }
	}},
	{name: "a storm of EVENTs", begin: func(s *scenario) func() { return s.every(time.Millisecond, s.publish(20)) }},
	{
		name: "more than 1024 responses outstanding", begin: func(s *scenario) func() { return s.every(roundLength, s.publish(1500)) },
		opts: []mockserver.Option{mockserver.WithHazard(mockserver.Overflow, true)},
	},
}

func inject(f mockserver.Fault) func(*scenario) func() {
	return func(s *scenario) func() { return s.inject(f) }
}

// injectEach50th applies f to one response in 50, ten times.
func injectEach50th(f mockserver.Fault) func(*scenario) func() {
	f.Times = 1
	return func(s *scenario) func() {
		var removals []func()
		for i := range 10 {
			f.Skip = 50 * i
			removals = append(removals, s.inject(f))
		}
		return func() {
			for _, remove := range removals {
				remove()
			}
		}
	}
}

// cut closes each connection after some bytes. It also closes all connections at once when it
// begins, so that the client has one that is cut, and when it ends.
func cut(d mockserver.Direction, after int) func(*scenario) func() {
	return func(s *scenario) func() {
		remove := s.srv.Cut(mockserver.Cut{Direction: d, After: after})
		s.srv.Disconnect()
		return func() {
			remove()
			s.srv.Disconnect()
		}
	}
}

func restart(keepData bool) func(*scenario) func() {
	return func(s *scenario) func() {
		require.NoError(s, s.srv.Restart(keepData))
		return nil
	}
}

// TestNoFaultCausesWrongRepeatedOrLateCalls subjects each workload to each fault. It fails if a
// call returns a wrong response, is executed twice, is late, or reports wrongly that it was not
// sent; if goroutines leak; or if the client does not recover.
func TestNoFaultCausesWrongRepeatedOrLateCalls(t *testing.T) {
	for _, w := range workloads {
		for _, f := range faults {
			testkit.Bubble(t, w.name+"/"+f.name, func(t *testing.T) {
				r := newScenario(t, f).run(f, w)
				t.Logf("%+v", r)
				if f.shifts && !w.hits { // no hit is decided by the response to another
					r.wrong = 0
				}
				require.Equal(t, totalCalls, r.calls)
				require.Equal(t, result{calls: r.calls, correct: r.correct, byPolicy: r.byPolicy, failed: r.failed}, r)
			})
		}
	}
}

// A scenario makes rounds of calls. The fault begins and ends within a round, while calls are in
// progress.
const (
	rounds         = 16
	roundLength    = time.Second
	faultBegin     = 4*roundLength + 4600*time.Microsecond
	faultEnd       = 10*roundLength + 4600*time.Microsecond
	recoveredRound = 13 // from this round on, all calls must succeed

	callsPerRound = 8
	totalCalls    = rounds * callsPerRound
	callInterval  = time.Millisecond
	latency       = 3300 * time.Microsecond // of a response
	stallTimeout  = 400 * time.Millisecond
	maxLateness   = 50 * time.Millisecond
)

// callTimeouts apply to calls in turn: one is shorter than stallTimeout, one longer.
var callTimeouts = [2]time.Duration{300 * time.Millisecond, 700 * time.Millisecond}

// scenario is a server that has a fault, and a client that makes calls of one kind.
type scenario struct {
	*testing.T
	srv           *mockserver.Server
	client        *throttr.Client[uint16]
	executed      executions
	timeout       time.Duration // of the calls of the workload, whatever their ctx; 0: none
	removeLatency func()

	mu     sync.Mutex // guards result
	result result
}

// call makes the n-th call of a workload. If the call fails, executed says whether the server has
// executed any of its requests.
type call func(ctx context.Context, n int) (v verdict, executed bool, err error)

// verdict says what decided a call.
type verdict int

const (
	correctResponse verdict = iota
	wrongResponse
	policy // there was no response, and the policy decided
)

// verdict returns the verdict on a response.
func (s *scenario) verdict(correct bool) verdict {
	if correct {
		return correctResponse
	}
	return wrongResponse
}

// result counts the outcomes of a scenario's calls.
type result struct {
	calls, correct, byPolicy, failed int

	wrong       int // responses to another request
	repeated    int // executions of a request after the first
	late        int // calls that returned more than maxLateness after their deadline
	leaked      int // goroutines after the client was closed
	misreported int // errors that say "not sent" of an executed request
	unrecovered int // calls since recoveredRound without a correct response
}

func newScenario(t *testing.T, f fault) *scenario {
	s := &scenario{T: t}
	s.executed.requests, s.executed.assigned = map[string][]mockserver.Exec{}, map[windowCount]int{}
	s.srv = testkit.InMemory(t, append(f.opts, mockserver.WithObserver(s.executed.observe))...)
	s.removeLatency = s.srv.Inject(mockserver.Fault{Delay: latency})
	s.client = testkit.Connect[uint16](t, s.srv, testkit.Over(s.srv, throttr.Config{
		MaxConns: 1, StallTimeout: stallTimeout, ConnectTimeout: stallTimeout,
		MinBackoff: 20 * time.Millisecond, MaxBackoff: 80 * time.Millisecond,
	}))
	return s
}

// inject adds f to the server. The server applies the first fault that matches, so inject puts
// the latency behind f.
func (s *scenario) inject(f mockserver.Fault) (remove func()) {
	s.removeLatency()
	if f.Delay == 0 {
		f.Delay = latency
	}
	remove = s.srv.Inject(f)
	s.removeLatency = s.srv.Inject(mockserver.Fault{Delay: latency})
	return remove
}

// every calls f now, and then at each interval until stop is called.
func (s *scenario) every(interval time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ; ctx.Err() == nil; time.Sleep(interval) {
			f()
		}
	}()
	return cancel
}

// publish returns a function that sends n messages to every connection.
func (s *scenario) publish(n int) func() {
	return func() {
		for range n {
			s.srv.Publish("storm", []byte("!"))
		}
	}
}

// run makes all calls while the fault happens, and returns what they returned.
func (s *scenario) run(f fault, w workload) result {
	do, finish := w.start(s)
	var calls sync.WaitGroup
	calls.Go(func() {
		time.Sleep(faultBegin)
		if end := f.begin(s); end != nil {
			time.Sleep(faultEnd - faultBegin)
			end()
		}
	})
	for n := range totalCalls {
		calls.Go(func() {
			round := n / callsPerRound
			time.Sleep(time.Duration(round)*roundLength + time.Duration(n%callsPerRound)*callInterval)
			s.call(do, n, round >= recoveredRound)
		})
	}
	calls.Wait()
	s.client.Close()
	synctest.Wait()
	s.result.leaked = len(testkit.Stacks())
	s.result.repeated = finish()
	return s.result
}

// call makes a call and counts its outcome.
func (s *scenario) call(do call, n int, recovered bool) {
	timeout := callTimeouts[n%len(callTimeouts)]
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	defer cancel()
	start := time.Now()
	v, executed, err := do(ctx, n)
	elapsed := time.Since(start)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.result
	r.calls++
	switch {
	case err != nil:
		r.failed++
		if !errors.Is(err, throttr.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("unexpected error: %v", err)
		}
		if testkit.SafeToRetry(err) && executed {
			r.misreported++
		}
	case v == wrongResponse:
		r.wrong++
	case v == policy:
		r.byPolicy++
	default:
		r.correct++
	}
	if s.timeout > 0 {
		timeout = min(timeout, s.timeout)
	}
	if elapsed > timeout+maxLateness {
		r.late++
	}
	if recovered && (err != nil || v != correctResponse) {
		r.unrecovered++
	}
}

// executions records what a server executes.
type executions struct {
	mu       sync.Mutex                   // guards what follows
	requests map[string][]mockserver.Exec // by op and key, without the requests themselves
	assigned map[windowCount]int          // how many hits the server gave each count to
}

// windowCount is a count of the window of a key.
type windowCount struct {
	key   string
	count uint64
}

// observe is an observer of a mock server.
func (x *executions) observe(e mockserver.Exec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch r := e.Request.(type) {
	case codec.Subscribe:
		e.Key = fmt.Sprintf("%s on %d", r.Channel, e.Conn)
	case codec.Insert[uint16]:
		x.count(e, math.MaxUint16-r.Quota)
	case codec.Update[uint16]:
		if r.Change == codec.Decrease {
			x.count(e, r.Value)
		}
	}
	e.Request = nil // its bytes are valid only now
	id := e.Op.String() + " " + e.Key
	x.requests[id] = append(x.requests[id], e)
}

// count records that a request has counted n hits, if its key is that of a window. Counters count
// down. The caller holds mu.
func (x *executions) count(e mockserver.Exec, n uint16) {
	name, ok := fixedwindow.ParseName([]byte(e.Key))
	if !ok || !e.Status {
		return
	}
	for i := range uint64(n) {
		x.assigned[windowCount{name.Key, math.MaxUint16 - e.Quota - i}]++
	}
}

// assignments returns how many hits the server gave a count to.
func (x *executions) assignments(c windowCount) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.assigned[c]
}

// added returns how much was added to the windows of each key.
func (x *executions) added() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := map[string]int{}
	for c, hits := range x.assigned {
		all[c.key] += hits
	}
	return all
}

// of returns the executions of a request.
func (x *executions) of(op codec.Op, key string) []mockserver.Exec {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.requests[op.String()+" "+key]
}

// match reports whether ok is the status of the last execution of a request, and, if that is a
// QUERY, quota its quota.
func (x *executions) match(op codec.Op, key string, ok bool, quota uint16) bool {
	all := x.of(op, key)
	if len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return ok == last.Status && (op != codec.OpQuery || uint64(quota) == last.Quota)
}

// repeated returns how many executions requests of some ops had after their first.
func (x *executions) repeated(ops ...codec.Op) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, all := range x.requests {
		for _, op := range ops {
			if strings.HasPrefix(id, op.String()+" ") {
				n += len(all) - 1
			}
		}
	}
	return n
}

// A reset before the first response kills a server (H15). RunT fails for one.
func TestNothingIsResetBeforeTheServerHasAcceptedIt(t *testing.T) {
	const patience = 300 * time.Millisecond // enough to connect on a busy machine
	type client = throttr.Client[uint16]
	for name, use := range map[string]func(ctx context.Context, c *client){
		"request":      func(ctx context.Context, c *client) { c.Query(ctx, "k") },
		"listing":      func(ctx context.Context, c *client) { testkit.Collect(t, c.List(ctx)) },
		"subscription": func(ctx context.Context, c *client) { c.Subscribe(ctx, "c") },
		"hit":          func(ctx context.Context, c *client) { throttr.NewRateLimit(c.Backend()).Hit(ctx, "k", time.Minute, 5) },
	} {
		for step, end := range map[string]func(cancel func(), c *client){
			"cancel":  func(cancel func(), _ *client) { cancel() },
			"close":   func(_ func(), c *client) { c.Close() },
			"timeout": func(func(), *client) { time.Sleep(patience + 10*time.Millisecond) },
		} {
			t.Run(name+"/"+step, func(t *testing.T) {
				t.Parallel() // they mostly wait
				srv := mockserver.RunT(t)
				client := testkit.Connect[uint16](t, srv, throttr.Config{
					MaxConns: 2, ConnectTimeout: patience, StallTimeout: patience, MinBackoff: time.Hour, MaxBackoff: time.Hour,
				})
				srv.HoldAccept(true)
				if name == "request" {
					srv.Disconnect() // so that it needs another connection
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var using sync.WaitGroup
				for range 3 {
					using.Go(func() { use(ctx, client) })
				}
				time.Sleep(20 * time.Millisecond)
				end(cancel, client)
				cancel()
				using.Wait()
				client.Close()
				srv.HoldAccept(false)
				require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			})
		}
	}
}

// What a server can't send keeps its memory for good (H16).
func TestNoResponseIsLeftUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in real time, a busy machine may need more than there is for what is due
		srv := testkit.InMemory(t, mockserver.WithServiceTime(20*time.Microsecond))
		for round := range 5 {
			cfg := testkit.Over(srv, throttr.Config{MaxConns: 4, MaxConnAge: 20 * time.Millisecond, HealthInterval: 5 * time.Millisecond})
			client := testkit.Connect[uint16](t, srv, cfg)
			limiter := throttr.NewRateLimit(client.Backend())
			sub, err := client.Subscribe(t.Context(), pubsub.All)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var users sync.WaitGroup
			for i := range 20 {
				users.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						key := fmt.Sprint(round, i, n%20)
						short, end := context.WithTimeout(ctx, time.Duration(1+n%7)*100*time.Microsecond)
						limiter.Hit(short, key, time.Minute, 1000)
						client.Query(short, key)
						client.Publish(short, pubsub.All, []byte("x"))
						for range client.List(short) {
							break
						}
						end()
						time.Sleep(time.Microsecond) // a closed client fails at once
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			if round%2 == 0 {
				cancel()
				users.Wait()
			}
			require.NoError(t, client.Close(), "with requests in flight, in every other round")
			cancel()
			users.Wait()
			for err == nil {
				_, err = sub.Next(t.Context())
			}
			require.Eventually(t, func() bool { return srv.Conns() == 0 }, 5*time.Second, time.Millisecond)
			require.Zero(t, srv.Leaked())
		}
	})
}

// A server that has just been started is killed by load (H17): RunT fails for it.
func TestAServerThatStartsIsSparedLoad(t *testing.T) {
	for _, parking := range []throttr.Parking{throttr.ParkingAutomatic, throttr.ParkingAlways, throttr.ParkingNever} {
		synctest.Test(t, func(t *testing.T) {
			srv := testkit.InMemory(t, mockserver.WithHazard(mockserver.StartUp, true))
			time.Sleep(time.Second)
			var clients []*throttr.Client[uint16]
			for range 5 {
				clients = append(clients, testkit.Connect[uint16](t, srv, throttr.Config{Parking: parking, Dial: refusing(srv)}))
			}
			var users sync.WaitGroup
			var recovered atomic.Int64 // when the last client was served again, after the restart
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			var started time.Time
			for c, client := range clients {
				limiter := testkit.NewRateLimit(client.Backend())
				client.Subscribe(ctx, "c")
				for i := range max(2, testkit.Fewer(10)) {
					users.Go(func() {
						for away := false; ctx.Err() == nil; time.Sleep(3 * time.Millisecond) {
							_, err := limiter.Hit(ctx, fmt.Sprint(c, i), time.Minute, 1<<15)
							if away && err == nil {
								recovered.Store(max(recovered.Load(), int64(time.Since(started))))
							}
							away = err != nil
							if i == 0 {
								for range client.List(ctx) {
								}
							}
						}
					})
				}
			}
			for range 2 {
				time.Sleep(time.Second)
				srv.Refuse(true)
				srv.Disconnect()
				time.Sleep(700 * time.Millisecond)
				srv.Refuse(false)
				started = time.Now()
				require.NoError(t, srv.Restart(false))
			}
			users.Wait()
			require.LessOrEqual(t, time.Duration(recovered.Load()), 203*time.Millisecond, "of the start, and the pause between hits")
		})
	}
}

// refusing returns a Dial that fails as that of a port on which nobody listens.
func refusing(srv *mockserver.Server) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := srv.Dial(ctx)
		if errors.Is(err, mockserver.ErrRefused) {
			err = syscall.ECONNREFUSED
		}
		return nc, err
	}
}

// A record whose TTL is longer than that of any window of that scale must be the response to another
// request. No hit is decided by it, and the connection ends.
func TestImpossibleTTLEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bands, _ := slot.BandsFor(time.Minute, math.MaxUint16)
		srv, client := testkit.Start[uint16](t, throttr.Config{MaxConns: 1, MaxRetries: -1})
		limiter := testkit.NewRateLimit(client.Backend())
		testkit.Hits(t, limiter, 1, "k", time.Minute, 5)
		time.Sleep(time.Second) // for the sweeper, which also makes QUERYs
		ttl := codec.TTL[uint16]{Amount: uint16(bands.Top) + 1, Unit: codec.Seconds}
		other := testkit.Encode(t, codec.QueryResponse[uint16]{Found: true, Quota: 3, TTL: ttl})
		srv.Inject(mockserver.Fault{Op: codec.OpQuery, Times: 1, Replace: other})
		_, err := limiter.Hit(t.Context(), "k", time.Minute, 5)
		require.ErrorIs(t, err, throttr.ErrProtocol)
		synctest.Wait() // the pool learns of the end after the call
		require.EqualValues(t, 1, client.Stats().Servers[0].Failures)
		require.Positive(t, testkit.Hits(t, limiter, 1, "k", time.Minute, 5), "on another connection")
	})
}
