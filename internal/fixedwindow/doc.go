// Package fixedwindow keeps fixed windows on Throttr servers, exactly, for any number of clients.
// docs/internals/windows.md explains the rules, and package slot has them as functions.
//
// A [Backend] has slots for each count that it remembers: for a key, and the name and scale of a
// limit. A hit travels like this:
//
//	backend.go    finds the slots (table.go, slots.go), once the arguments are checked (check.go)
//	known.go      decides it if the open window is known to be full, and says whether it may share a request
//	queue.go      lets it share a request with others that come while one is in flight
//	count.go      counts it in the known window, or in one that it opens
//	search.go     searches for the open window if none is known, and plans how to open one
//	operations.go peeks at the open window, ends it, or opens another one in its place
//	link.go       keeps the connection for lookups and for what rests on them
//	janitor.go    says when to remove the records of keys that are not in use any more
//	clean.go      removes them, not more at a time than the server is fast enough for (pace.go)
//
// Takes are hits that may be refused; take.go makes several of them, and together.go in one round trip.
// How windows are kept in records is in records.go and names.go, and what sweepers and others tell from them is in
// inspector.go.
//
// # Words
//
// The names of functions say what they ask of the server:
//
//	find     the slots of a key and limit: nothing is asked
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
