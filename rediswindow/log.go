package rediswindow

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// slidingLog keeps sliding logs. See lua/log.lua for what is stored.
var slidingLog = &algorithm{
	letter: 'l', source: logLua,
	most:       func(o *options) uint64 { return o.maxLog },
	appendArgs: appendCounts,
	describe: func(l *window.Limit, made bool, now int64, state []int64) window.Window {
		w := rest(uint64(state[0]), now, state[1]+l.Scale.Microseconds())
		if made {
			w.ID = takeID(state[1], state[3])
		}
		return w
	},
	wait: func(t *window.Take, _ *window.Window, now int64, state []int64) time.Duration {
		return time.Duration(state[2]-now)*time.Microsecond + t.Limit.Scale
	},
}
