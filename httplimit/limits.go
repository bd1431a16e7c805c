package httplimit

import (
	"time"

	"github.com/throttr-go/throttr"
)

// PerSecond allows n requests a second. Its name is "second".
func PerSecond(n uint64) throttr.Limit {
	return throttr.Limit{Name: "second", Max: n, Scale: time.Second}
}

// PerMinute allows n requests a minute. Its name is "minute".
func PerMinute(n uint64) throttr.Limit {
	return throttr.Limit{Name: "minute", Max: n, Scale: time.Minute}
}

// PerHour allows n requests an hour. Its name is "hour".
func PerHour(n uint64) throttr.Limit { return throttr.Limit{Name: "hour", Max: n, Scale: time.Hour} }

// PerDay allows n requests in 24 hours. Its name is "day".
func PerDay(n uint64) throttr.Limit { return throttr.Limit{Name: "day", Max: n, Scale: 24 * time.Hour} }
