package slot

import "time"

// Kind is the kind of an action.
type Kind uint8

// The kinds, with the requests of their calls. X is the slot of the action, Y the other one.
// ADD is DECREASE, as counters count down.
const (
	Look     Kind = iota // wait until At, and look both slots up: QUERY X, QUERY Y
	Read                 // QUERY X
	Done                 // there is nothing to do
	Join                 // ADD X, QUERY X
	Open                 // TTL X := T, ADD X, QUERY X, free Y
	Create               // INSERT X with the hits counted, free Y if it is idle
	Tidy                 // free Y, beside the window of X
	Spoil                // ADD 1 to X, which is free: it is over then
	Retire               // TTL X := D-1: it becomes doomed
	Refill               // count X := 1 less than the largest, for each of Slots: a claim fits again
	Claim                // ADD 1 to X, QUERY X, for each of Slots
	Remove               // PURGE X, for each of Slots
	End                  // ADD 1 to X, TTL X := M-1: ends the window
	GiveBack             // INCREASE X: gives hits back
)

// Action is what to do next: one call, whose requests are written at once. What rests on a lookup goes out on
// the connection of the lookup (rule 4), and a GiveBack on that of its hits (rule 11).
type Action struct {
	Kind  Kind
	Slot  ID
	Slots [2]bool // instead of Slot, for Refill, Claim and Remove
	Frees bool    // for Create
	// At is when to look up, for Look. It is zero if that is at once.
	At time.Time
	// By is when the last response must have arrived. If it has not, the outcome of a Join is
	// unknown. After any other action, the connection has to be ended then, so that the call is
	// executed by that time or never (rule 3).
	By time.Time
}

// Deadline returns until when an action that rests on a lookup has to be written. Later, its
// responses would hardly arrive in time, so the lookup has to be repeated.
func (b *Bands) Deadline(a Action) time.Time { return a.By.Add(-b.Guard / 2) }

// by returns an action that must have been executed within a guard of its lookup (rule 3).
func (b *Bands) by(a Action, sent time.Time) Action {
	a.By = sent.Add(b.Guard)
	return a
}

// Op is what a request does to a record.
type Op uint8

// The operations.
const (
	Query      Op = iota // QUERY
	Insert               // INSERT with a quota of Value and a TTL of Bands.Top
	Decrease             // UPDATE QUOTA DECREASE: counts Value hits
	Increase             // UPDATE QUOTA INCREASE: gives Value hits back
	PatchQuota           // UPDATE QUOTA PATCH
	PatchTTL             // UPDATE TTL PATCH
	Purge                // PURGE
)

// Request is one request of a call.
type Request struct {
	Op    Op
	Slot  ID
	Value uint64
}

// Requests appends the requests of an action to dst. n is the number of hits that it counts or
// gives back.
func (b *Bands) Requests(dst []Request, a Action, n uint64) []Request {
	x, y := a.Slot, a.Slot.Other()
	switch a.Kind {
	case Look:
		dst = append(dst, Request{Query, x, 0}, Request{Query, y, 0})
	case Read:
		dst = append(dst, Request{Query, x, 0})
	case Join:
		dst = append(dst, Request{Decrease, x, n}, Request{Query, x, 0})
	case Open: // rule 6
		dst = append(dst, Request{PatchTTL, x, b.Top}, Request{Decrease, x, n}, Request{Query, x, 0})
		dst = b.free(dst, y)
	case Create: // rule 13
		dst = append(dst, Request{Insert, x, b.Largest - n})
		if a.Frees {
			dst = b.free(dst, y)
		}
	case Tidy:
		dst = b.free(dst, y)
	case Spoil:
		dst = append(dst, Request{Decrease, x, 1})
	case Retire:
		dst = append(dst, Request{PatchTTL, x, b.Doom - 1})
	case End:
		dst = append(dst, Request{Decrease, x, 1}, Request{PatchTTL, x, b.Margin - 1})
	case GiveBack:
		dst = append(dst, Request{Increase, x, n})
	case Refill, Claim, Remove:
		for id, chosen := range a.Slots {
			switch {
			case !chosen:
			case a.Kind == Refill:
				dst = append(dst, Request{PatchQuota, ID(id), 1})
			case a.Kind == Claim:
				dst = append(dst, Request{Decrease, ID(id), 1}, Request{Query, ID(id), 0})
			default:
				dst = append(dst, Request{Purge, ID(id), 0})
			}
		}
	}
	return dst
}

// Effects is what the responses to the requests of an action say that it has done.
type Effects struct {
	Lookup
	Armed  [2]bool // for which slots an INSERT or a PATCH of the TTL has succeeded
	Added  [2]bool // in which slots a DECREASE has counted
	Purged int     // records
}

// Note adds the response to a request: whether it has succeeded, and what it showed if it is a QUERY.
func (e *Effects) Note(q Request, ok bool, shown Observation) {
	switch q.Op {
	case Query:
		e.Slots[q.Slot] = shown
	case Insert, PatchTTL:
		e.Armed[q.Slot] = ok
	case Decrease:
		e.Added[q.Slot] = ok
	case Purge:
		if ok {
			e.Purged++
		}
	}
}

// free appends the requests that free a slot.
func (b *Bands) free(dst []Request, id ID) []Request {
	return append(dst, Request{PatchQuota, id, b.Largest}, Request{PatchTTL, id, b.Margin - 1})
}
