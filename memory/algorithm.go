package memory

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// algorithm is how a [window.Algorithm] keeps a window in a state. Its functions get and
// return states by value, as a state whose address they got would be allocated. Those that get a shard
// hold its mutex. Times are those of states: see reference.shift. An algorithm that is added needs a file of
// its own, and an element of algorithms.
type algorithm struct {
	aligned bool                    // its windows follow the wall clock
	rolling bool                    // see window.Algorithm.Rolling
	logs    bool                    // a state has times in the log of the shard
	most    func(b *Backend) uint64 // the largest Max and count
	end     func(e state) int64     // when the window ends
	active  func(e state, now int64) bool
	count   func(e state, now int64) uint64
	// id returns the ID of the window, or, if the algorithm is rolling, of the take that was added last.
	id func(e state) int64
	// take decides on a take of n. If it is granted, the state that it returns has n more, except in the
	// log: see access.store.
	take func(s *shard, e state, at instant, r rule, n uint64) (state, verdict)
	// charge adds n beyond the limit. If the algorithm logs, it only returns how many are to be added.
	charge func(s *shard, e state, at instant, r rule, n uint64) (state, uint64)
	// giveBack gives n back to the window or take with an ID.
	giveBack func(s *shard, e state, at instant, id int64, n uint64) (state, bool)
}

// algorithms are all algorithms.
var algorithms = [...]algorithm{
	window.FixedWindow: fixed(false), window.AlignedWindow: fixed(true), window.TokenBucket: bucket,
	window.SlidingWindow: slidingWindow, window.SlidingLog: slidingLog,
}

// instant is the time of a call, in the time of the state.
type instant struct {
	now int64
	ref *reference
}

// rule is the numbers of a limit. Of an algorithm without a burst, both are Max.
type rule struct {
	max   uint64
	holds uint64 // what is allowed at once
}

// verdict is the decision on a take.
type verdict struct {
	granted bool
	changed bool          // the state has changed
	count   uint64        // after the take if it is granted, before it otherwise
	wait    time.Duration // until the take would be granted if it is refused
}

// unlimited is the largest count of an algorithm that has no other bound.
func unlimited(*Backend) uint64 { return window.Unlimited }
