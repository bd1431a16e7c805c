package window

import "time"

// Listed is what a backend counts for a key and limit.
type Listed struct {
	// Key is the key as it is stored.
	Key string
	// Digest says that Key is a digest: of a long key, some backends store no more.
	Digest bool
	// Limit is what the count belongs to: Name, Scale, Algorithm, Calendar, Zone and StartDay. Max and Burst are
	// those of the last call with a Max over 0 that has counted something, or of a later one, or 0 where a backend
	// does not store them: a call without a limit, such as RateLimit.Inc, leaves them as they were.
	Limit Limit
	// Window is the state of the window. Its ID may be 0.
	Window Window
}

// ListedPlaces is the places in flight of a key and name.
type ListedPlaces struct {
	Key     string // as it is stored
	Digest  bool   // Key is a digest
	Name    string
	Used    uint64 // places that are held
	Waiting uint64 // wants in line
	// ByProcess is the processes that hold places or wait for them, by their names. On a backend in memory, each
	// Limiter of package inflight is one.
	ByProcess []Holder
}

// Holder is a process that holds places in flight of a key and name, or waits for them.
type Holder struct {
	Process   string        // as in a [Claim]; of package inflight: the host, the process number, and a random text
	Held      uint64        // places
	Waiting   uint64        // wants in line
	LeaseEnds time.Duration // in which time its places are lost unless it renews them; 0 if it holds none, or has no lease
}
