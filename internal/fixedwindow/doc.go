// Package fixedwindow keeps fixed windows on Throttr servers, exactly, for any number of clients.
// docs/internals/windows.md explains the rules, and package slot has them as functions. H1 to H27 are hazards of
// servers, which docs/internals/protocol.md describes.
//
// # What happens to a call
//
// A Hit goes through these files, in this order:
//
//  1. backend.go: the method checks the arguments (check.go), and finds the state of the count (table.go), which is
//     what the backend remembers of a key, and the name and scale of a limit.
//  2. queue.go: the hit is admitted, by known.go. If the known window was full when it was read not long ago, the hit is
//     denied at once. It shares the next request with hits that wait. A caller that is alone counts by itself.
//  3. count.go: hits in a known window are one call on any connection of the pool: a DECREASE and a QUERY (records.go).
//  4. search.go: if no window is known, both slots are looked up, on the connection of link.go. A live one becomes the
//     known window. Otherwise the result is a plan: the action that opens a slot, once others have made it free.
//     count.go executes it, on the same connection, with the hits in it.
//  5. queue.go: each hit that was counted gets its place in the count. What refused takes have added is given back
//     first (operations.go). Hits whose window was over by then wait again.
//
// If a call fails, so do the hits that share it, and sent says whether they may have been counted. Nothing is repeated.
// The next hit begins with a read.
//
// operations.go ends windows, and gives back. take.go peeks, and makes several takes, together.go in one round trip.
// janitor.go says when to remove the records of idle keys, and clean.go removes them, no more at a time than the server
// is near and fast enough for (pace.go). remover.go does so for sweepers, when clients have died.
//
// # Words
//
// The names of functions say what they ask of the server:
//
//	find     the state of a count: nothing is asked
//	recall   what is known of the open window: nothing is asked
//	learn    keep a window that a response has shown as the known one, until it is forgotten
//	read     QUERY the slot of a known window
//	refresh  read the known window again, so that it may deny what has waited for that
//	peek     QUERY both slots on any connection: no action may rest on it
//	look up  QUERY both slots on the connection of the link: actions rest on it
//	search   look up, and execute the actions that follow, until the open window is found, or can be opened or ended
//	plan     search for the open window, and return how to open one if there is none
//	prepare  refresh the known window, or plan how to open one, for hits that wait
package fixedwindow
