package servicetime

import (
	"fmt"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Max is the longest service time of a request that makes no record.
const Max = time.Millisecond

// What requests take on a real server (H7).
const (
	// Request is the time of a request that makes no record.
	Request = 2700 * time.Nanosecond
	// OldAge is the number of records that a server has made when creation is at its slowest.
	OldAge = 41_000
)

// creation says how long an INSERT or SET takes by the number of records that the server has
// made before. In between it grows evenly; after the last it stays the same.
var creation = []struct {
	made int
	time time.Duration
}{
	{0, 3 * time.Microsecond},
	{20_000, 35 * time.Microsecond},
	{OldAge, 140 * time.Microsecond},
}

// Creation returns how long an INSERT or SET takes on a real server that has made a number
// of records, whether it makes another one or fails.
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
	Request  time.Duration // each request, except those of Creation
	Creation bool          // INSERT and SET take the time that [Creation] returns
}

// Check returns an error if a time is out of bounds.
func (c Costs) Check() error {
	if c.Request < 0 || c.Request > Max {
		return fmt.Errorf("service time is 0 to %v, not %v", Max, c.Request)
	}
	return nil
}

// Of returns how long a request takes on a server that has made a number of records.
func (c Costs) Of(op codec.Op, made int) time.Duration {
	if c.Creation && (op == codec.OpInsert || op == codec.OpSet) {
		return Creation(made)
	}
	return c.Request
}
