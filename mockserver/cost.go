package mockserver

import (
	"time"

	"github.com/throttr-go/throttr/codec"
)

// maxServiceTime is the longest of [WithServiceTime].
const maxServiceTime = time.Millisecond

// oldAge is the number of records that a server has made when creation is at its slowest.
const oldAge = 41_000

// What requests take on a real server, on a quiet machine. Most of it is the sending of the response,
// each with a system call of its own.
var (
	// tcpCosts are those of a fresh server over TCP: 10 µs for a request that is alone, and 6 µs for one of many.
	tcpCosts = costs{request: 6 * time.Microsecond, turn: 4 * time.Microsecond, real: true}
	// unixCosts are those of a fresh server over a Unix socket: 12 µs, and 3.1 µs.
	unixCosts = costs{request: 3100 * time.Nanosecond, turn: 9 * time.Microsecond, real: true}
)

// What depends on the records that a real server has.
const (
	listed  = 5 * time.Microsecond  // a LIST or STATS takes it for each record (H20)
	scanned = 350 * time.Nanosecond // an INFO takes it for each record, and so does each minute (H24)
	leaked  = 17                    // every request takes it in tenths of a nanosecond for each response that was not read (H16)
)

// creation says how much longer than others an INSERT or SET takes by the number of records that the
// server has made before (H7). In between it grows evenly; after the last it stays the same.
var creations = []struct {
	made int
	time time.Duration
}{
	{0, 3 * time.Microsecond},
	{20_000, 35 * time.Microsecond},
	{oldAge, 140 * time.Microsecond},
}

// creationTime returns how much longer than others an INSERT or SET takes on a real server that has made a
// number of records, whether it makes another one or fails.
func creationTime(made int) time.Duration {
	last := creations[0]
	for _, next := range creations[1:] {
		if made < next.made {
			share := float64(made-last.made) / float64(next.made-last.made)
			return last.time + time.Duration(share*float64(next.time-last.time))
		}
		last = next
	}
	return last.time
}

// costs says how long requests take.
type costs struct {
	request time.Duration // each request
	turn    time.Duration // besides it, each read of requests that have come together
	real    bool          // what depends on the records takes longer
}

// of returns how long a request takes on a server that has made a number of records, has a number of
// them, and has a number of responses that were not read.
func (c costs) of(op codec.Op, made, records, unread int) time.Duration {
	d := c.request
	if !c.real {
		return d
	}
	d += time.Duration(unread*leaked/10) * time.Nanosecond
	switch op {
	case codec.OpInsert, codec.OpSet:
		d += creationTime(made)
	case codec.OpList, codec.OpStats:
		d += time.Duration(records) * listed
	case codec.OpInfo:
		d += c.ofScan(records)
	}
	return d
}

// ofScan returns how long the server takes to look through its records.
func (c costs) ofScan(records int) time.Duration {
	if !c.real {
		return 0
	}
	return time.Duration(records) * scanned
}
