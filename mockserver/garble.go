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

// ghosts returns records that never existed, one for each late removal.
func (st *store) ghosts() (all []*record) {
	g := &st.garbler
	g.removals = slices.DeleteFunc(g.removals, func(at uint64) bool { return at+garbleTime <= st.now })
	for range g.removals {
		all = append(all, &record{key: rand.Text(), unit: codec.Seconds, expires: st.now})
	}
	return all
}

// spoil makes every fourth response that is garbled malformed.
func (g *garbler) spoil(out []byte, garbled bool) {
	if !garbled {
		return
	}
	g.responses++
	if g.responses%malformedEvery == 0 {
		// The index of the first fragment follows the status and the fragment count.
		binary.LittleEndian.PutUint64(out[9:], 0xdead)
	}
}
