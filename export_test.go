package throttr

import "github.com/throttr-go/throttr/codec"

// Trace has f told in which bucket's window each hit was decided.
func Trace[T codec.Value](b *ServerBackend[T], f func(key string, bucket int64, count, limit uint64)) {
	b.traced = f
}

// Lanes returns how many windows b remembers.
func Lanes[T codec.Value](b *ServerBackend[T]) int { return b.lanes.len() }

// QueuePlaces returns how many places b's queues have, waiting visits or none.
func QueuePlaces[T codec.Value](b *ServerBackend[T]) int {
	n := 0
	for i := range b.lanes.shards {
		for _, l := range b.lanes.shards[i].lanes {
			l.mu.Lock()
			n += len(l.queue.ring)
			l.mu.Unlock()
		}
	}
	return n
}

// Owned returns how many records b has yet to remove.
func Owned[T codec.Value](b *ServerBackend[T]) int {
	n := 0
	for i := range b.purgers {
		p := &b.purgers[i]
		p.mu.Lock()
		n += p.claimed
		p.mu.Unlock()
	}
	return n
}

// Loans returns how often callers of a client have read their answers themselves, on the
// connections that are open.
func Loans[T codec.Value](client *Client[T]) (n uint64) {
	for _, p := range client.pools {
		for _, c := range *p.conns.Load() {
			c.mu.Lock()
			n += c.loans
			c.mu.Unlock()
		}
	}
	return n
}
