package conn

import "sync/atomic"

// Load is the work of a connection: the requests that are queued or in flight, and the
// calls that they belong to. The more requests, the larger the number.
type Load int64

// callBits is the number of bits for calls. The bits above them count requests.
const callBits = 32

// Requests returns the number of requests.
func (l Load) Requests() int { return int(l >> callBits) }

// Calls returns the number of calls.
func (l Load) Calls() int { return int(l & (1<<callBits - 1)) }

// loadCounter is a Load that changes in one atomic step.
type loadCounter struct{ n atomic.Int64 }

func (c *loadCounter) add(requests, calls int) { c.n.Add(int64(requests)<<callBits + int64(calls)) }

func (c *loadCounter) remove(requests, calls int) { c.add(-requests, -calls) }

func (c *loadCounter) get() Load { return Load(c.n.Load()) }
