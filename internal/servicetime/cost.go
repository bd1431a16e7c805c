package servicetime

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Max is the longest service time of a request that makes no record.
const Max = time.Millisecond

// OldAge is the number of records that a server has made when creation is at its slowest.
const OldAge = 41_000

// What requests take on a real server, on a quiet machine. Most of it is the sending of the response,
// each with a system call of its own.
var (
	// TCP is a fresh server over TCP: 10 µs for a request that is alone, and 6 µs for one of many.
	TCP = Costs{Request: 6 * time.Microsecond, Turn: 4 * time.Microsecond, Creation: true, Records: true}
	// Unix is a fresh server over a Unix socket: 12 µs, and 3.1 µs.
	Unix = Costs{Request: 3100 * time.Nanosecond, Turn: 9 * time.Microsecond, Creation: true, Records: true}
)

// What depends on the records that a real server has.
const (
	listed  = 5 * time.Microsecond  // a LIST or STATS takes it for each record (H20)
	scanned = 350 * time.Nanosecond // an INFO takes it for each record, and so does each minute (H24)
	leaked  = 17                    // every request takes it in tenths of a nanosecond for each response that was not read (H16)
)

// creation says how much longer than others an INSERT or SET takes by the number of records that the
// server has made before (H7). In between it grows evenly; after the last it stays the same.
var creation = []struct {
	made int
	time time.Duration
}{
	{0, 3 * time.Microsecond},
	{20_000, 35 * time.Microsecond},
	{OldAge, 140 * time.Microsecond},
}

// Creation returns how much longer than others an INSERT or SET takes on a real server that has made a
// number of records, whether it makes another one or fails.
func Creation(made int) time.Duration {
	last := creation[0]
	for _, next := range creation[1:] {
		if made < next.made {
			share := float64(made-last.made) / float64(next.made-last.made)
			return last.time + time.Duration(share*float64(next.time-last.time))
		}
		last = next
	}
	return last.time
}

// Costs says how long requests take.
type Costs struct {
	Request  time.Duration // each request
	Turn     time.Duration // besides it, each read of requests that have come together
	Creation bool          // INSERT and SET take longer, as [Creation] says
	Records  bool          // LIST, STATS, INFO and each minute take time for each record
}

// Check returns an error if a time is out of bounds.
func (c Costs) Check() error {
	if c.Request < 0 || c.Request > Max {
		return fmt.Errorf("service time is 0 to %v, not %v", Max, c.Request)
	}
	return nil
}

// Of returns how long a request takes on a server that has made a number of records, has a number of
// them, and has a number of responses that were not read.
func (c Costs) Of(op codec.Op, made, records, unread int) time.Duration {
	d := c.Request + c.leaked(unread)
	switch op {
	case codec.OpInsert, codec.OpSet:
		if c.Creation {
			d += Creation(made)
		}
	case codec.OpList, codec.OpStats:
		if c.Records {
			d += time.Duration(records) * listed
		}
	case codec.OpInfo:
		d += c.OfScan(records)
	}
	return d
}

// OfScan returns how long the server takes to look through its records.
func (c Costs) OfScan(records int) time.Duration {
	if !c.Records {
		return 0
	}
	return time.Duration(records) * scanned
}

func (c Costs) leaked(unread int) time.Duration {
	if !c.Records {
		return 0
	}
	return time.Duration(unread*leaked/10) * time.Nanosecond
}
