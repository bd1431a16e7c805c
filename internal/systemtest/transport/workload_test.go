package transport_test

import (
	"sync"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/mockserver"
)

// execution names requests by what they do.
type execution struct {
	op  codec.Op
	key string
}

// journal counts how often a server executed requests.
type journal struct {
	mu   sync.Mutex // guards seen
	seen map[execution]int
}

// observe is for mockserver.WithObserver.
func (j *journal) observe(e mockserver.Exec) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = make(map[execution]int)
	}
	j.seen[execution{e.Op, e.Key}]++
}

// count returns how often the server executed op on key.
func (j *journal) count(op codec.Op, key string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen[execution{op, key}]
}

// result is the outcome of a request.
type result struct {
	op    codec.Op
	key   string
	right bool // the response, if there is one, is the only one that can be right
	err   error
}
