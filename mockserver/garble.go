package mockserver

import (
	"crypto/rand"
	"encoding/binary"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// garbleTime is how long after a removal a LIST suffers from it (H14).
	garbleTime = uint64(time.Second)
	// malformedEvery is how many garbled responses there are for a malformed one.
	malformedEvery = 4
)

// garbler spoils the responses to LIST and STATS (H14). A real server sends them from
// records that can be removed meanwhile. Here each record that was removed less than
// garbleTime ago leaves an entry with a key that no record has, and every fourth
// response with such entries is malformed.
type garbler struct {
	on        bool
	removals  []uint64 // when, in ns since 1970
	responses int      // with entries that never existed
}

// removed is called for each record that is removed.
func (g *garbler) removed(now uint64) {
	if g.on {
		g.removals = append(g.removals, now)
	}
}

// listed returns the records of a LIST or STATS: the live ones, in an order that means nothing, which counts as a read
// of each; and some that never existed.
func (st *store) listed() (all []*record) {
	for _, r := range st.collector.events.records {
		if !r.dead {
			r.reads.mark(st.minute, 1)
			all = append(all, r)
		}
	}
	g := &st.garbler
	g.removals = slices.DeleteFunc(g.removals, func(at uint64) bool { return at+garbleTime <= st.now })
	for range g.removals {
		all = append(all, &record{key: rand.Text(), unit: codec.Seconds, expires: st.now})
	}
	return all
}

// spoil makes every fourth response malformed that has entries which never existed.
func (g *garbler) spoil(frame []byte) {
	if len(g.removals) == 0 {
		return
	}
	g.responses++
	if g.responses%malformedEvery == 0 {
		// The index of the first fragment follows the status and the fragment count.
		binary.LittleEndian.PutUint64(frame[9:], 0xdead)
	}
}
