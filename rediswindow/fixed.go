package rediswindow

import (
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// fixedWindow keeps windows that end at a time. See lua/window.lua for what is stored.
func fixedWindow(letter byte) *algorithm {
	return &algorithm{
		letter: letter, source: windowLua, most: upToMaxCount,
		appendArgs: func(args []string, c *call) []string {
			return append(args, strconv.FormatUint(c.Limit.Max, 10), strconv.FormatUint(min(c.N, MaxCount+1), 10), c.id)
		},
		describe: func(l *window.Limit, _ bool, now int64, state []int64) window.Window {
			if state[0] < 0 {
				return window.Window{}
			}
			return opened(l.Scale, state[0], state[1], now, state[2])
		},
		wait: func(_ *window.Take, w *window.Window, _ int64, _ []int64) time.Duration { return w.Left },
	}
}

// opened returns a window that is active. Times are in microseconds since 1970.
func opened(scale time.Duration, count, start, now, id int64) window.Window {
	end := start + scale.Microseconds()
	return window.Window{
		Count: uint64(min(count, MaxCount)), ExpiresAt: time.UnixMicro(end), Left: time.Duration(end-now) * time.Microsecond, ID: id,
	}
}
