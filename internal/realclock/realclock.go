// Package realclock knows which servers have backends in this process that read the real clock.
// With it, a mock server in the same process notices that a test moves the server's clock and not
// that of a backend.
package realclock

import "sync"

var (
	// mu guards backends.
	mu sync.Mutex
	// backends counts the backends that read the real clock, by the text of the server.
	backends = make(map[string]int)
)

// Add says that a backend on some servers reads the real clock, until remove is called.
func Add(servers []string) (remove func()) {
	add(servers, 1)
	return func() { add(servers, -1) }
}

func add(servers []string, n int) {
	mu.Lock()
	defer mu.Unlock()
	for _, s := range servers {
		if backends[s] += n; backends[s] == 0 {
			delete(backends, s)
		}
	}
}

// Used reports whether a backend on a server reads the real clock.
func Used(server string) bool {
	mu.Lock()
	defer mu.Unlock()
	return backends[server] > 0
}
