// Package drivers remembers who opens the URLs of a scheme. Package window adds them, and package
// throttr looks them up.
package drivers

import "sync"

var (
	mu      sync.RWMutex           // guards openers
	openers = make(map[string]any) // by scheme: a function that package window knows
)

// Add remembers the opener of a scheme. It returns false if the scheme has one.
func Add(scheme string, open any) bool {
	mu.Lock()
	defer mu.Unlock()
	if _, taken := openers[scheme]; taken {
		return false
	}
	openers[scheme] = open
	return true
}

// Of returns the opener of a scheme, or nil.
func Of(scheme string) any {
	mu.RLock()
	defer mu.RUnlock()
	return openers[scheme]
}
