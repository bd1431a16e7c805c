// Package window is for those who write a backend: what a limit, a take and a backend are, and the
// errors that backends return. Programs that only limit need package throttr alone.
//
// To write a backend, embed [Unimplemented] and write the methods of [Backend] on a store that can add
// to a number and read it in one step. Then run the conformance suite:
//
//	func TestMyBackend(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Subject {
//			clock := backendtest.NewClock()
//			return backendtest.Subject{Backend: mybackend.New(mybackend.WithClock(clock.Now)), Clock: clock}
//		})
//	}
//
// Outside of this module, it imports only the standard library.
package window

import (
	"context"
	"iter"
	"time"
)

// Window is the state of a window right after a call. The zero Window means that there is none.
type Window struct {
	// Count is what has been counted. With a rolling algorithm it is what still counts, rounded up.
	Count     uint64
	ExpiresAt time.Time     // when the window ends, by the backend's clock
	Left      time.Duration // from now until ExpiresAt; positive while the window is active
	// RetryAfter is when a call that was refused would be granted if nobody else called; [Never] if
	// waiting does not help. 0 means Left. If Left is 0, the store has no room: there may be some sooner.
	RetryAfter time.Duration
	// ID tells windows of a key and limit apart, for GiveBack. Peek need not set it.
	ID      int64
	Refused bool // n was not counted
}

// Traits is what a backend promises about a limit, beyond what all backends promise.
type Traits struct {
	MaxCount  uint64        // the largest Max, Burst, n and count; 0: no bound
	Precision time.Duration // ExpiresAt may be so much too late
}

// Backend keeps windows. Authors embed [Unimplemented], wrappers the Backend that they wrap.
//
// A window belongs to a key and to the Name, Scale, Algorithm, Calendar, Zone and StartDay of a [Limit]. Keys are any
// strings, equal only if all bytes are. Another name, scale or algorithm is another window; another Max or Burst is
// not, nor are a Zone of "UTC" and an empty one, or a StartDay of 0 and 1. The Algorithm of a limit that a backend
// gets is never 0, and its Shadow is false. A RateLimit does not call Check before each call: every method returns
// that error itself.
//
// Every backend satisfies the following. [Algorithm.Rolling] says what is different with rolling
// algorithms.
//   - A window is active from the time it opens until one scale later, exclusive; an aligned one until
//     the next multiple of the scale; one of a calendar until the next day, week, month or year starts. A call that
//     counts opens a window if none is active.
//   - The Window that a method returns describes the window right after the call.
//   - No two concurrent calls that count return the same Count: n hits of 1 on a count of k get
//     k+1, k+2, … k+n. Counts do not wrap around.
//   - A take is granted if the count, or 0 if there is no active window, is at most Max-n. Otherwise
//     nothing changes, no window opens, and the Window is Refused.
//   - Refused says whether n was counted, but for hits: one that is over Max and not Refused may not have been
//     counted. A backend that refuses hits, too, counts what it grants.
//   - The ID of an active Window of Hit, Take, TakeAll, Charge or Set is not 0, and stays the same as long as the
//     window is active. Another window has another ID, even after a Reset at the same time.
//   - A RateLimit passes an n of 0 only to Hit, Peek and Set.
//   - What is given back is subtracted from the window that it was taken from, and never from another
//     one. The window stays active, even with a count of 0.
//   - All methods are safe for concurrent use. A call returns soon after its ctx ends, with an error that
//     matches the ctx's. If ctx has ended before the call, the call does nothing.
//   - Errors that match [ErrScale], [ErrRange] or [ErrUnsupported] are mistakes in the program, and
//     [ErrClosed] is its end. Any other error is a failure of the store, to which a policy applies.
//     Whether a call that failed was counted is unknown. A give-back is never repeated.
//
// The interface grows: later versions add methods. A backend that embeds Unimplemented returns
// [ErrUnsupported] from them, and a wrapper that embeds a Backend passes them on unchanged. So a wrapper
// that changes keys must be revised when a method is added. A generated mock fits when it is embedded
// beside a struct that embeds Unimplemented.
type Backend interface {
	// Check returns what the backend promises about a limit, or the error that every call with it
	// returns: it matches [ErrScale], [ErrRange], or [ErrUnsupported] (the algorithm). It asks no
	// server.
	Check(l Limit) (Traits, error)
	// Hit counts n, and then compares with the limit; beyond it, it need not count. With a rolling
	// algorithm, it decides as Take.
	Hit(ctx context.Context, key string, l Limit, n uint64) (Window, error)
	// Take counts n if the count stays within the limit. Otherwise the Window is Refused.
	Take(ctx context.Context, key string, l Limit, n uint64) (Window, error)
	// Charge counts n, even beyond the limit. A count that would pass MaxCount stays there; a token
	// bucket owes at most Burst more.
	Charge(ctx context.Context, key string, l Limit, n uint64) (Window, error)
	// Peek returns what Take would, and changes nothing. With an n of 0 it describes the window.
	Peek(ctx context.Context, key string, l Limit, n uint64) (Window, error)
	// Set opens a window with count n in place of the active one.
	Set(ctx context.Context, key string, l Limit, n uint64) (Window, error)
	// TakeAll makes all takes or none, and stores the states of their windows, Refused included, in
	// windows, which has the length of takes. Takes of one count are one take of their sum, under the
	// lowest Max and Burst. Of takes that are made at the same time, at least one is granted if each of
	// them would be granted alone. After a call without an error, the backend uses neither slice any more.
	TakeAll(ctx context.Context, takes []Take, windows []Window) (granted bool, err error)
	// GiveBack gives n back to the window with the ID. It returns false if that window has ended, or
	// can't be told: then n stays counted.
	GiveBack(ctx context.Context, key string, l Limit, n uint64, id int64) (bool, error)
	// Reset ends the window of a key and limit.
	Reset(ctx context.Context, key string, l Limit) error
	// Delete ends the windows of a key of the given scales, or of all, whatever their names and
	// algorithms. It returns how many there were. A scale that Check refuses is an error.
	Delete(ctx context.Context, key string, scales ...time.Duration) (int, error)
	// Exchange makes claims on places in flight, and stores the answers in places, which has the length of
	// claims. Claims are valid, and no two have the same key and name. An error is that of all claims, and says that it
	// is unknown which were made. Places have nothing to do with windows: no other method changes them.
	//
	// At most Max places of a key and name are held at a time:
	//   - A want is granted if the places that are held, and N, are at most Max. If another process is first in
	//     line, and its first want has no smaller Max, that must still fit after it. A process gets a position in line
	//     when its want is not granted and waits, behind those whose Max is not smaller. It keeps it, but goes to the
	//     end when one of its wants is granted. A process that has not claimed for a quarter of a lease has lost it.
	//   - A process that has not claimed for a lease holds nothing. Before, it is never refused what it holds,
	//     whatever the Max.
	//   - If a process holds more than the store knows, it is believed. But if its claim is Strict, and the sum would
	//     be over its HeldMax and the largest Max under which others hold places, it has lost everything.
	//   - A claim whose Seq is not larger than that of an earlier one of a process that holds places changes nothing.
	//   - A store that may have lost what it knew, or is new, is another data set, and grants nothing to Strict claims
	//     for a lease, so that all processes can say what they hold.
	Exchange(ctx context.Context, claims []Claim, places []Places) error
	// List returns what is counted now, of some keys or of all, in no order, while others count on: what ends or
	// begins meanwhile may be missing, and a count may come twice. No lock is held while the loop's body runs, so it
	// may call the backend, and may end early. An error is the last element, with a zero Listed.
	List(ctx context.Context, keys ...string) iter.Seq2[Listed, error]
	// ListPlaces is List for places in flight.
	ListPlaces(ctx context.Context, keys ...string) iter.Seq2[ListedPlaces, error]

	unimplemented() // embed Unimplemented, or a Backend
}

// Unimplemented is to be embedded by backends. Its methods return [ErrUnsupported].
type Unimplemented struct{}

var _ Backend = Unimplemented{}

// Check implements [Backend].
func (Unimplemented) Check(Limit) (Traits, error) { return Traits{}, ErrUnsupported }

// Hit implements [Backend].
func (Unimplemented) Hit(context.Context, string, Limit, uint64) (Window, error) {
	return Window{}, ErrUnsupported
}

// Take implements [Backend].
func (Unimplemented) Take(context.Context, string, Limit, uint64) (Window, error) {
	return Window{}, ErrUnsupported
}

// Charge implements [Backend].
func (Unimplemented) Charge(context.Context, string, Limit, uint64) (Window, error) {
	return Window{}, ErrUnsupported
}

// Peek implements [Backend].
func (Unimplemented) Peek(context.Context, string, Limit, uint64) (Window, error) {
	return Window{}, ErrUnsupported
}

// Set implements [Backend].
func (Unimplemented) Set(context.Context, string, Limit, uint64) (Window, error) {
	return Window{}, ErrUnsupported
}

// TakeAll implements [Backend].
func (Unimplemented) TakeAll(context.Context, []Take, []Window) (bool, error) {
	return false, ErrUnsupported
}

// GiveBack implements [Backend].
func (Unimplemented) GiveBack(context.Context, string, Limit, uint64, int64) (bool, error) {
	return false, ErrUnsupported
}

// Reset implements [Backend].
func (Unimplemented) Reset(context.Context, string, Limit) error { return ErrUnsupported }

// Delete implements [Backend].
func (Unimplemented) Delete(context.Context, string, ...time.Duration) (int, error) {
	return 0, ErrUnsupported
}

// Exchange implements [Backend].
func (Unimplemented) Exchange(context.Context, []Claim, []Places) error { return ErrUnsupported }

// List implements [Backend].
func (Unimplemented) List(context.Context, ...string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) { yield(Listed{}, ErrUnsupported) }
}

// ListPlaces implements [Backend].
func (Unimplemented) ListPlaces(context.Context, ...string) iter.Seq2[ListedPlaces, error] {
	return func(yield func(ListedPlaces, error) bool) { yield(ListedPlaces{}, ErrUnsupported) }
}

func (Unimplemented) unimplemented() {}
