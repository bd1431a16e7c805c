// Package slot is the slot protocol: how clients that do not communicate keep exact windows in the records of a Throttr
// server. It consists of pure functions, without a lock, clock or connection. They are given what the records of a key
// and scale show, and what is wanted, and return the next action, which is a list of requests. The document
// docs/internals/windows.md says why it is so, draws the bands, and describes the model in which the tests run these
// functions. H1 to H27 are hazards of servers, which docs/internals/protocol.md describes.
//
// # Slots and bands
//
// A key and scale has two records, the slots A and B. They take turns: while one holds the open window, the other one
// waits for the next window. The remaining TTL of a record, which a QUERY shows rounded down to a unit, says what the
// record means: from M on, its window is open; from D on, it is idle, which is free if the count is 0, and over
// otherwise; below D, it is doomed.
//
// The server's clock ends windows. All clients see the end at the same time, because M is a whole number of units, so
// rounding does not move it. A count is the number of hits, although counters count down (H3).
//
// To free a slot is to set its count to 0 and its TTL to M-1.
//
// # What happens
//
// Without an open window, the states of both slots decide what a hit does:
//
//	 A \ B  │ absent    free           over       doomed
//	────────┼────────────────────────────────────────────────
//	 absent │ Create A  Create A       Create A   Create A
//	 free   │ Create B  Spoil A (s)    Open A     Remove B (s)
//	 over   │ Create B  Open B         Retire A (s)  Remove B (s)
//	 doomed │ Remove A (s), in each case
//
//	(s): after the slot has been stable, which means unchanged, for a guard
//
// Usually, one slot is free and the other one is over. The other cases are those of a new key, of a key that was idle
// for long, and of clients that have died or were late.
//
// # Rules
//
// Comments in the code give the numbers of these rules. For each of rules 1 to 11, TestEachRuleIsNeeded has a trace
// that goes wrong without it.
//
//  1. Hits in a record that exists count only if the QUERY of their own call shows an open window. So it does not matter
//     how long ago a client learned of the window.
//  2. They count only if the response arrives less than a guard after the end of the window they were
//     meant for. Otherwise the DECREASE may have been executed in one window, and the QUERY in the
//     next one of the same slot: it takes two guards to retire, remove and create a slot.
//  3. No action is executed later than a guard after its lookup was sent, and a guard is at most
//     half a scale. So an action that rests on the state before a window opened is executed
//     before that window ends, or never. If the responses are not there in time, the client ends the
//     connection with a TCP reset.
//  4. An action goes out on the connection of its lookup. So a server that was restarted receives
//     none that rests on lost records.
//  5. All clients that see the same states open the same slot. Create prefers A, and a free slot is
//     opened only beside one that is over: a late hit can make a free slot over at any time, and
//     that must not change which slot is opened. The lookup must have read the slot before the
//     other one.
//  6. Open sets the TTL of its slot first and frees the other one last, so that an Open of which
//     only a part is executed is harmless.
//  7. Doomed slots are not opened, and only doomed slots are removed. So a slot that is over is
//     retired before it is removed.
//  8. Retire, Refill, Claim, Tidy, End, and the Spoil of a slot while both are free need slots that have
//     been stable for a guard.
//  9. Only a client that has claimed a slot removes it: it has added 1, and then seen one more than
//     the count that was stable. So at most one client at a time removes a slot.
//  10. A Reset ends a window early. Its lookups are less than a guard apart, so that they all show
//     the same window. They all show the other slot free, doomed or absent, so that no client is
//     about to free it. End adds a hit first, so that the slot is over, even if all others are
//     given back after it, within the guard of rule 11.
//  11. Hits are given back to a window at most once, on the connection that counted them, within a
//     guard, and while the window is certainly open.
//
// Other rules save time or requests:
//
//  12. A client sends hits to a window that it knows until the earliest time at which the window
//     can end, and then looks it up again. Later hits make a free slot over, so that the next
//     window costs an INSERT.
//  13. Create is one INSERT whose quota includes the hits, and it frees the other slot in the same
//     packet.
//  14. If a slot beside an open window is over, a janitor frees it (Tidy).
//
// # Assumptions
//
// docs/internals/windows.md has them, but for one: the requests of one call are executed within a guard of each
// other, as they are written at once. (Without Resets, 1.5 scales would do.)
//
// # Bounded waits
//
// While a slot is retired and removed, no window of its key can be opened. If requests are fast, that takes at most
// about six guards. A name whose record has expired (H1) can't be used for up to 10 s, unless the server is parked.
package slot
