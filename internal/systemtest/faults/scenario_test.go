package faults_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

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
