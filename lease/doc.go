// Package lease makes shared limits as fast as memory: a process takes blocks of places from a
// backend ahead of its hits, and spends them by itself.
//
//	servers := client.Backend()
//	leases := lease.New(servers)
//	defer leases.Close() // gives back what is left
//	limiter := throttr.NewRateLimit(leases)
//
// The limit stays exact: between the start and the end of a window, all processes together allow at
// most limit hits. The cost is that a hit can be denied although places are left, in the blocks of
// other processes. docs/leases.md says when that is worth it, and what else differs.
//
// Only keys that are hit often have blocks. Hits on other keys go to the backend.
//
// # How it works
//
//	backend.go   the calls: finds the entry of a key, or passes the call on
//	table.go     the entries of hot keys; which keys are hot
//	entry.go     one key and limit: takes a block, replaces it, gives it back
//	block.go     places that were taken together
//	decide.go    all decisions, as pure functions: sizes, times, what can be given back
//
// A block belongs to one window and one limit, Max included: all its places are within that limit. Limits with a
// rolling algorithm have no blocks: what is taken and used later would allow too much. Nor have limits with a
// Calendar. These rules keep the limit exact:
//
//   - A block is dead when its window may be over, measured from before the take was sent.
//   - A hit takes its place first, and reads the clock then. So a process that was stopped in
//     between grants nothing of a window that is over.
//   - Whoever retires a block takes all its remaining places in one step, as a hit takes one.
//   - Places are given back once, whatever the outcome is, and to their window only.
package lease
