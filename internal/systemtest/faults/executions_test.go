package faults_test

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/mockserver"
)

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
	if x.requests == nil {
		x.requests, x.assigned = map[string][]mockserver.Exec{}, map[windowCount]int{}
	}
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

// added returns how much was added to the windows of key.
func (x *executions) added(key string) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c, hits := range x.assigned {
		if c.key == key {
			n += hits
		}
	}
	return n
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
