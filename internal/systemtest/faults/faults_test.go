// Package faults_test subjects each kind of call to each fault of a server or of the network, and
// counts what the calls return. It also shows that a shift of responses is noticed, and how limits
// behave during an outage.
package faults_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/mockserver"
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
	{name: "responses split into bytes", begin: split},
	{name: "all responses dropped", begin: inject(mockserver.Fault{Drop: true})},
	{name: "each 50th response dropped", begin: injectEach50th(mockserver.Fault{Drop: true}), shifts: true},
	{name: "all responses duplicated", begin: inject(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "each 50th response duplicated", begin: injectEach50th(mockserver.Fault{Duplicate: true}), shifts: true},
	{name: "garbage instead of a response", begin: inject(mockserver.Fault{Replace: []byte{0xde, 0xad, 0xbe, 0xef}})},
	{name: "an unsolicited response", begin: sendUnsolicited},
	{name: "connections half-open", begin: func(s *scenario) func() { return s.every(roundLength, s.srv.HalfOpen) }},
	{name: "connections refused", begin: refuse},
	{name: "connections end", begin: func(s *scenario) func() { return s.every(roundLength, s.srv.Disconnect) }},
	{name: "connections end after 400 bytes from the client", begin: cut(mockserver.FromClient, 400)},
	{name: "connections end after 40 bytes to the client", begin: cut(mockserver.ToClient, 40)},
	{name: "restart with data", begin: restart(true)},
	{name: "restart without data", begin: restart(false)},
	{name: "restart with another value size", begin: changeValueSize},
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

func split(s *scenario) func() {
	s.srv.Split(1)
	return func() { s.srv.Split(0) }
}

// sendUnsolicited sends statuses between the rounds, when no call is in progress.
func sendUnsolicited(s *scenario) func() {
	time.Sleep(roundLength / 2)
	return s.every(roundLength, func() { s.srv.Send([]byte{1}) })
}

func refuse(s *scenario) func() {
	s.srv.Refuse(true)
	s.srv.Disconnect()
	return func() { s.srv.Refuse(false) }
}

func restart(keepData bool) func(*scenario) func() {
	return func(s *scenario) func() {
		require.NoError(s, s.srv.Restart(keepData))
		return nil
	}
}

func changeValueSize(s *scenario) func() {
	require.NoError(s, s.srv.Recompile(1))
	return func() { require.NoError(s, s.srv.Recompile(2)) }
}

// TestNoFaultCausesWrongRepeatedOrLateCalls subjects each workload to each fault. It fails if a
// call returns a wrong response, is executed twice, is late, or reports wrongly that it was not
// sent; if goroutines leak; or if the client does not recover.
func TestNoFaultCausesWrongRepeatedOrLateCalls(t *testing.T) {
	for _, w := range workloads {
		for _, f := range faults {
			t.Run(w.name+"/"+f.name, func(t *testing.T) {
				var r result
				synctest.Test(t, func(t *testing.T) { r = newScenario(t, f).run(f, w) })
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
