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

// listed returns the records of a LIST or STATS: the live ones, in an order that means nothing, which counts as a read
// of each. With [GarbledList], an entry that never existed follows for each record that was removed less than
// garbleTime ago: a real server sends the response from records that can be removed meanwhile (H14).
func (st *store) listed() (all []*record) {
	for _, r := range st.records {
		if !r.dead {
			r.reads.mark(st.minute, 1)
			all = append(all, r)
		}
	}
	st.removals = slices.DeleteFunc(st.removals, func(at uint64) bool { return at+garbleTime <= st.now })
	for range st.removals {
		all = append(all, &record{key: rand.Text(), unit: codec.Seconds, expires: st.now})
	}
	return all
}

// spoil makes every fourth response malformed that has entries which never existed.
func (st *store) spoil(frame []byte) {
	if len(st.removals) == 0 {
		return
	}
	st.garbled++
	if st.garbled%malformedEvery == 0 {
		// The index of the first fragment follows the status and the fragment count.
		binary.LittleEndian.PutUint64(frame[9:], 0xdead)
	}
}
