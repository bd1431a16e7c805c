package api

import "sync"

var (
	driversMu sync.RWMutex           // guards drivers
	drivers   = make(map[string]any) // the openers of URLs by scheme: functions that package window knows
)

// AddDriver remembers the opener of a scheme. It returns false if the scheme has one.
func AddDriver(scheme string, open any) bool {
	driversMu.Lock()
	defer driversMu.Unlock()
	if _, taken := drivers[scheme]; taken {
		return false
	}
	drivers[scheme] = open
	return true
}

// DriverOf returns the opener of a scheme, or nil.
func DriverOf(scheme string) any {
	driversMu.RLock()
	defer driversMu.RUnlock()
	return drivers[scheme]
}
