// Package inflight limits how many calls of a key are in flight at a time, over all processes that share a
// store: at most 20 exports of a customer, whatever the number of servers.
//
//	var exports = inflight.Limit{Name: "exports", Max: 20, Lease: 10 * time.Second}
//
//	backend, err := throttr.Open(ctx, "redis://10.0.0.1:6379")
//	limiter := inflight.New(backend)
//	defer limiter.Close()
//
//	h, ok, err := limiter.TryAcquire(ctx, "customer:7", exports, 1)
//	if err != nil || !ok {
//		…
//	}
//	defer h.Release()
//	export(h.Context())
//
// # What is promised
//
// At most Max places of a key are held at a time. A process holds its places as long as it lives and reaches the
// store, however long that is: it renews them every quarter of a lease. Those of a process that has crashed can
// be taken by others after a lease.
//
// A process that can't renew its places, because the store is away or the process stands still, loses them when
// its lease is over, before others can take them: [Hold.Valid] is false from then on, and [Hold.Context] ends with the
// cause [ErrLost]. It is at least three quarters of a lease after the store was reached last. With the policies [Share]
// and [Admit], places stay held while the store is away. It is away if it has not answered while the process ran: an
// answer that was not read because the process stood still decides nothing.
//
// A store that has lost its data grants places at once. Processes tell it what they hold as soon as they notice,
// within a quarter of a lease, and nobody's places end for it. So more than Max can be held, at most as many more as
// were forgotten, until they are released. With [WithStrict], such a store grants nothing for a lease instead.
//
// # What is not promised
//
// A lease protects the count, and not what a holder has begun before it lost its place. A process can stand still
// between a check and the step that follows. Whoever does something that can't be undone asks [Hold.Valid] right
// before it, and what it is done to can refuse a [Hold.Token] that is smaller than one that it has seen.
//
// A request that the store has not answered may reach it later, after the process has told it that it holds nothing any
// more. An eighth of a lease after the failure, or a minute if that is less, the process tells it so once more. What a
// request holds that comes later than that is free when its lease is over.
//
// The clock that counts is the store's, and the monotonic clock of each process. The bound breaks if the time
// of the store jumps by more than the margin, about a hundredth of a lease, or if the clock of a process stands still
// while it sleeps, as that of a virtual machine that is suspended may. All processes must use the same Lease for a
// name. See package rediswindow for what Redis can lose.
//
// # In a process
//
// With package memory as the backend, places are held in the memory of the process. They have no lease, and are
// never lost. If there is only one key, golang.org/x/sync/semaphore does the same.
//
// # Parts
//
//	limiter.go   Acquire, TryAcquire, what they and Release have a pump decide; Peek and Close
//	hold.go      Hold, its states, and what an observer is told of it
//	pump.go      what callers want and hold of a key, who is granted it, what the store is told of it, and when: rules
//	             without a clock or a store
//	exchange.go  the timers of pumps, and their exchanges with the store, each of many pumps; what follows when the store
//	             has lost its data
//	options.go   options and events
//
// The mutex of the Limiter guards its pumps, their callers and Holds, and the queues of their lanes. It is not held
// during an exchange with a store, nor while an observer is called, a context ended, or another Limiter woken: that is
// done when it is unlocked.
package inflight
