package window

import "time"

// Places in flight are held by processes, each of which speaks for all of its own holders. It tells a store
// in exchanges what it holds, and what it wants. An exchange takes, gives back and renews at once. As it says
// all that the process holds, what a lost one has done is undone by the next. Package inflight is made of
// them.

const (
	// MinLease is the shortest lease of places in flight.
	MinLease = 10 * time.Millisecond
	// MaxLease is the longest lease of places in flight.
	MaxLease = 24 * time.Hour
	// MaxPlaces is the largest Max of places in flight, and the largest number that a process can hold.
	MaxPlaces uint64 = 1<<53 - 1
	// MaxWants is how many wants a claim may have.
	MaxWants = 256
)

// Claim is what a process says in an exchange on the places of a key and name.
type Claim struct {
	Key  string
	Name string // of the limit: as that of a [Limit], and tells counts of one key apart
	// Process tells processes apart: at most 64 printable ASCII characters without spaces. A claim without it
	// only asks: it has a key, a name, and nothing else.
	Process string
	// Seq is larger than in any claim that the process has made before on the key and name, and from 1 to [MaxPlaces].
	// A process makes one at a time.
	Seq uint64
	// Lease is for how long the store keeps the places of the process after the exchange, from [MinLease] to
	// [MaxLease]. All processes have the same for a key and name.
	Lease time.Duration
	// Held is how many places the process holds, without those that it wants.
	Held uint64
	// Strict asks for nothing to be granted for a lease after the store has lost its data, or has just been made, so
	// that processes can say what they hold, and for places to be lost that the store does not know and that do not
	// fit any more. Without it, places are granted at once, and the process is believed.
	Strict bool
	// HeldMax is the largest Max of the limits under which they are held.
	HeldMax uint64
	// Wants are decided in this order, at most [MaxWants].
	Wants []Want
	// Wake is called if a want that has not been granted may be granted now. It may also be called without a
	// reason, or never: whoever waits asks again before an eighth of a lease is over. It is called by any
	// goroutine, must not wait for anything, and must not call the backend. May be nil.
	Wake func()
}

// Want is a wish for N places under a Max.
type Want struct {
	N, Max uint64 // 1 to Max, and up to [MaxPlaces]
	// Wait says that the want waits in line if it is not granted. It is then in the next claim, too. The wants
	// after it are not granted before it.
	Wait bool
}

// Places is the answer to a claim. Without an Err, it describes the places right after the exchange.
type Places struct {
	// Tokens has a number for each want that was granted, and 0 for the others. It is nil if none was. Each
	// grant of a key and name has a larger one than those before.
	Tokens []uint64
	// Lost says, of a Strict claim, that the store does not know that the process holds places, and that they do not
	// fit any more. It holds none.
	Lost bool
	// Forgotten says that the store did not know of some places that the process holds. It does now. If their lease
	// was not over, the store has lost its data.
	Forgotten bool
	// Grace is for how long nothing is granted yet. It is 0 unless the claim is Strict.
	Grace time.Duration
	// DataSet changes when the store may have lost its data: then processes should tell it what they hold. 0: not
	// known.
	DataSet uint64
	// Late says that the store has seen a later claim of the process, so this one has changed nothing.
	Late bool
	// Used is how many places are held, by all processes.
	Used uint64
	// Waiting is how many wants wait in line.
	Waiting uint64
	// Next is in which time places may become free by themselves. 0: that is not known, or never.
	Next time.Duration
	// Err is why this claim has failed, if others of the same call have not.
	Err error
}
