package mockserver

import (
	"encoding/binary"
	"time"
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
	removals  []removal
	responses int // with entries that never existed
}

// removal is the removal of a record.
type removal struct {
	key string
	at  uint64 // ns since 1970
}

// removed is called for each record that is removed.
func (g *garbler) removed(key string, now uint64) {
	if g.on {
		g.removals = append(g.removals, removal{key, now})
	}
}

// ghosts returns keys that no record has and never had, one for each late removal.
func (st *store) ghosts() (keys [][]byte) {
	g := &st.garbler
	for _, r := range g.removals {
		if r.at+garbleTime > st.now {
			keys = append(keys, st.ghost(r.key))
		}
	}
	if len(keys) == 0 {
		g.removals = g.removals[:0]
	}
	return keys
}

// ghost returns a key as long as that of a removed record, but not empty.
func (st *store) ghost(removed string) []byte {
	order := tableOrder(removed)
	key := make([]byte, max(len(removed), 1))
	for {
		for i := range key {
			order = order*6364136223846793005 + 1442695040888963407
			key[i] = byte(order >> 56)
		}
		if st.records[string(key)] == nil {
			return key
		}
	}
}

// spoil makes every fourth response that has ghosts malformed.
func (g *garbler) spoil(out []byte, ghosts int) {
	if ghosts == 0 {
		return
	}
	g.responses++
	if g.responses%malformedEvery == 0 {
		// The index of the first fragment follows the status and the fragment count.
		binary.LittleEndian.PutUint64(out[9:], 0xdead)
	}
}
