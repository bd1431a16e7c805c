package throttr

import "sync/atomic"

// load is what a connection has to do: requests that are queued or in flight, and the calls
// that they belong to. Both are in one number, which takes one step to change.
type load struct{ n atomic.Int64 }

// callBits are those for calls, below those for requests.
const callBits = 32

func (l *load) add(requests, calls int) { l.n.Add(int64(requests)<<callBits + int64(calls)) }

func (l *load) remove(requests, calls int) { l.add(-requests, -calls) }

func (l *load) get() loadNumber { return loadNumber(l.n.Load()) }

// loadNumber is what a load was at a time: the more requests, the larger.
type loadNumber int64

func (n loadNumber) requests() int { return int(n >> callBits) }

func (n loadNumber) calls() int { return int(n & (1<<callBits - 1)) }
