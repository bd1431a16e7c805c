package slot

import "time"

// Verb is what a request does to a record.
type Verb uint8

// The verbs.
const (
	Query      Verb = iota // QUERY
	Insert                 // INSERT with a quota of Value and a TTL of Bands.Top
	Decrease               // UPDATE QUOTA DECREASE: counts Value hits
	Increase               // UPDATE QUOTA INCREASE: gives Value hits back
	PatchQuota             // UPDATE QUOTA PATCH
	PatchTTL               // UPDATE TTL PATCH
	Purge                  // PURGE
)

// Op is one request of a batch.
type Op struct {
	Verb  Verb
	Slot  ID
	Value uint64
}

// Kind is the kind of a move.
type Kind uint8

// The kinds. The comments say what the requests of a batch are, with X for the slot of the
// move and Y for the other one.
const (
	Look     Kind = iota // wait until At, then look: QUERY A, QUERY B
	Join                 // ADD X, QUERY X
	Open                 // TTL X := T, ADD X, QUERY X, FREE Y
	Create               // INSERT X with the hits counted already, FREE Y if Y is idle
	Tidy                 // FREE Y, while the window of X is open
	Spoil                // ADD 1 to X: makes a free slot over
	GiveBack             // take n back from the count of X
	End                  // TTL X := M-1: ends the window of X
	Retire               // TTL X := D-1: nobody can open X, so it is to be removed
	Refill               // lets an exhausted record be claimed
	Claim                // ADD 1, QUERY, for each slot of Which
	Remove               // PURGE each slot of Which
	Done                 // there is nothing to do
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"look", "join", "open", "create", "tidy", "spoil", "give back", "end", "retire", "refill", "claim", "remove", "done"}[k]
}

// Move is what to do next. All requests of a move are one batch, which is written at once. A
// move other than Join goes out on the connection on which its lookup was answered.
type Move struct {
	Kind  Kind
	Slot  ID      // X
	Which [2]bool // for Refill, Claim and Remove
	Frees bool    // for Create: Y is idle
	// At is when to look again, for Look.
	At time.Time
	// By is when the last reply must have arrived. If it has not, the connection has to be
	// ended, so that the batch is executed by then or never.
	By time.Time
}

// Ops appends the requests of a move to dst. n is the number of hits, for those that count.
func (b *Bands) Ops(dst []Op, m Move, n uint64) []Op {
	x, y := m.Slot, m.Slot.Other()
	switch m.Kind {
	case Look:
		dst = append(dst, Op{Query, A, 0}, Op{Query, B, 0})
	case Join:
		dst = append(dst, Op{Decrease, x, n}, Op{Query, x, 0})
	case Open:
		dst = append(dst, Op{PatchTTL, x, b.Top}, Op{Decrease, x, n}, Op{Query, x, 0})
		dst = b.free(dst, y)
	case Create:
		dst = append(dst, Op{Insert, x, b.Largest - n})
		if m.Frees {
			dst = b.free(dst, y)
		}
	case Tidy:
		dst = b.free(dst, y)
	case Spoil:
		dst = append(dst, Op{Decrease, x, 1})
	case GiveBack:
		dst = append(dst, Op{Increase, x, n})
	case End:
		dst = append(dst, Op{PatchTTL, x, b.Margin - 1})
	case Retire:
		dst = append(dst, Op{PatchTTL, x, b.Doom - 1})
	case Refill, Claim, Remove:
		dst = b.removal(dst, m)
	}
	return dst
}

// free appends the requests that make a slot free.
func (b *Bands) free(dst []Op, id ID) []Op {
	return append(dst, Op{PatchQuota, id, b.Largest}, Op{PatchTTL, id, b.Margin - 1})
}
