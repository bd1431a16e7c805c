package backendtest

import (
	"fmt"
	"sync/atomic"
	"time"
)

// testTwoAtOnce makes takes, give-backs and Incs of two clients at one time. Then both find what is
// held.
func testTwoAtOnce(c takes) {
	clients, limit := c.clients(), c.bounded(200)
	for round := range 2 {
		key := fmt.Sprint("k", round)
		held := takeAndGiveBack(clients, key, limit, true)
		for i, client := range clients {
			if n := client.get(key, time.Hour).Count; n != held {
				c.Errorf("client %d finds a count of %d, and %d are held", i, n, held)
			}
		}
	}
	endWindows(clients, limit)
}

// testRollingTwoAtOnce is testTwoAtOnce for rolling algorithms.
func testRollingTwoAtOnce(c rolling) {
	clients, limit := c.clients(), c.bounded(200)
	for round := range 2 {
		key := fmt.Sprint("k", round)
		held := takeAndGiveBack(clients, key, limit, false)
		for _, client := range clients {
			rolling{client}.holds(key, limit, held)
		}
	}
	endWindows(clients, limit)
}

// endWindows has clients take and give back at one time while some of them call Reset and Set. Each of
// these calls makes room for the whole limit once more, and for no more than that. In the end, none of
// them has an effect any more.
func endWindows(clients []takes, limit uint64) {
	const scale, ends = time.Hour, 6
	c := clients[0]
	for round := range 3 {
		key := fmt.Sprint("ended", round)
		var held atomic.Int64
		concurrently(3000, func(i int) {
			c, n := clients[i%len(clients)], uint64(1+i%3)
			var err error
			if i%500 == 250 { // ends times
				if i%1000 == 250 {
					err = c.Backend.Reset(c.Context(), key, scale)
				} else {
					_, err = c.Backend.Set(c.Context(), key, scale, 0)
				}
				if err != nil {
					c.Errorf("Reset or Set: %v", err)
				}
				return
			}
			w, granted, err := c.taker.Take(c.Context(), key, scale, limit, n)
			if err != nil || granted && w.Count > limit {
				c.Errorf("Take returns %+v, %v", w, err)
			}
			if !granted {
				return
			}
			back := false
			if i%4 > 0 {
				if back, err = c.taker.GiveBack(c.Context(), key, scale, w.ID, n); err != nil {
					c.Errorf("GiveBack: %v", err)
				}
			}
			if !back {
				held.Add(int64(n))
			}
		})
		if most := (ends + 1) * int64(limit); held.Load() > most {
			c.Errorf("round %d: %d are held, at most %d with a limit of %d and %d calls that end the window", round, held.Load(), most, limit, ends)
		}
		c.set(key, scale, 0)
		for n := range limit + 10 {
			client := int(n) % len(clients)
			if _, granted := clients[client].take(key, scale, limit, 1); granted != (n < limit) {
				c.Fatalf("round %d: after Set to 0, take %d of %d, of client %d, is granted: %v", round, n+1, limit, client, granted)
			}
		}
		for i, client := range clients {
			if w := client.get(key, scale); w.Count != limit {
				c.Errorf("round %d: client %d finds %+v, want a count of %d", round, i, w, limit)
			}
		}
	}
}
