// Package slot is the slot protocol: how clients that know nothing of each other keep exact
// windows in the records of a Throttr server. It consists of pure functions. They take what the
// records of a key and scale show, and what is wanted, and return the next action as a list of
// requests. They have no lock, clock or connection. The tests of this package run these very
// functions in a model, with clients, a server, and everything that can go wrong.
//
// # Slots and bands
//
// A key and scale has two records, the slots A and B. They take turns: while one holds the open
// window, the other one waits for the next. So opening a window creates no record. The remaining
// TTL of a record, which a QUERY shows rounded down to a unit, says what the record means:
//
//	TTL
//	 T  ┬ a window opens here
//	    │   live: the window is open
//	 M  ┼ it ends here, one scale later, at the same instant for all clients
//	    │   idle: free if the count is 0, and over otherwise
//	 D  ┼
//	    │   doomed: it is not used any more; its janitor removes it
//	 W  ┼
//	    │   doomed: watchers remove it, too
//	 0  ┴ it would expire
//
// The server's clock ends windows, and rounding does not blur their end. Counters count down
// from the largest value with DECREASE, so they cannot wrap (H3). In this package, a count is the
// number of hits, so 0 for a new record.
//
// To free a slot is to set its count to 0 and its TTL to M-1. Whoever opens a window in one slot
// frees the other one.
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
// Usually, one slot is free and the other one is over: Open. Everything else is the start or the
// end of a key's life, or the trace of a client that died or was late.
//
// # Rules
//
// The numbers are those in the comments of the code. Without any of rules 1 to 11, windows overlap
// or too many hits are granted: TestEachRuleIsNeeded has a trace for each.
//
//  1. Hits count only if the QUERY of their own batch shows an open window. So it does not matter
//     how long ago a client learned of the window.
//  2. They count only if the reply arrives less than a guard after the end of the window they were
//     meant for. Otherwise the DECREASE may have been executed in one window, and the QUERY in the
//     next one of the same slot: it takes two guards to retire, remove and create a slot.
//  3. No action is executed later than a guard after its lookup was sent, and a guard is at most
//     half a scale. So an action that rests on the state before a window opened is over before
//     that window is. If the replies are not there in time, the client ends the connection, with
//     a reset.
//  4. An action goes out on the connection of its lookup. So a server that was restarted gets none
//     that rests on the records it has lost.
//  5. All clients that see the same states have the same target. Create prefers A, and a free slot
//     is opened only beside one that is over. For a late hit can make a free slot over at any
//     time, and then the target must not change.
//  6. Open arms its slot first and frees the other one last, so that a part of it is harmless.
//  7. Doomed slots are not opened, and only doomed slots are removed. So a slot that is over is
//     retired, which means doomed, before it is removed.
//  8. Retire, Spoil, Remove, Tidy and End need slots that have been stable for a guard. Then
//     nothing is under way that rests on what they were before.
//  9. A slot is removed only by a client that has claimed it: it has added 1, and the QUERY shows
//     exactly one more than the count that was stable. So one client at a time removes it.
//  10. A Reset ends a window early. It needs lookups less than a guard apart, so that it was the
//     same window all the time, and another slot that was free, doomed or absent all the time, so
//     that nobody is about to free it.
//  11. Hits are returned to a window at most once, on the connection that counted them, within a
//     guard, and while the window is certainly open.
//
// Other rules save time or requests:
//
//  12. A client believes that a window is open until its earliest possible end. Then it looks it
//     up again. Hits that come later make a free slot over, and the next window costs an INSERT.
//  13. Create is one INSERT that has the hits counted already, and it frees the other slot in the
//     same packet.
//  14. If a slot beside an open window is over, a janitor frees it (Tidy).
//
// # Assumptions
//
//   - A server executes what it has received within a guard, or not at all.
//   - The requests of one batch are executed within a guard of each other. (They are written at
//     once. Without Resets, 1.5 scales would do.)
//   - Clocks of clients and servers run at the same speed. What they show does not matter.
//
// # Bounded waits
//
// A key has no open window and cannot get one while a slot is retired and removed: at most about
// six guards, if requests are fast. After a record has expired by itself, its name is unusable for
// up to 10 s (H1), unless the server is parked.
package slot
