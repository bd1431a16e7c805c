package rediswindow

import (
	"fmt"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// log keeps sliding logs. See log.lua for what is stored.
type log struct{ max uint64 }

var logScripts = newRollingScripts(":log", logLua, 4)

func (log) scripts() *rollingScripts { return logScripts }

func (l log) check(field string, n uint64) error {
	if field != "limit" || n <= l.max {
		return nil
	}
	return &window.RangeError{Field: field, Value: strconv.FormatUint(n, 10), Bound: fmt.Sprintf("at most %d", l.max)}
}

func (log) appendTake(args []string, l *window.Limit) []string { return appendLimit(args, l) }

func (l log) taken(limit *window.Limit, made bool, now int64, state []int64) window.Window {
	w := l.counted(limit.Scale, now, state)
	if made {
		w.ID = takeID(state[1], state[3])
	}
	return w
}

func (log) wait(limit *window.Limit, now int64, state []int64) time.Duration {
	return time.Duration(state[2]-now)*time.Microsecond + limit.Scale
}

func (log) counted(scale time.Duration, now int64, state []int64) window.Window {
	return rest(uint64(state[0]), now, state[1]+scale.Microseconds())
}
