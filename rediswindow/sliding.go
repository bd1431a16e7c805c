package rediswindow

import (
	"time"

	"github.com/throttr-go/throttr/window"
)

// slidingWindow keeps sliding windows. See lua/sliding.lua for what is stored.
var slidingWindow = &algorithm{
	letter: 'w', source: slidingLua, most: upToMaxCount,
	appendArgs: appendCounts,
	describe: func(l *window.Limit, made bool, now int64, state []int64) window.Window {
		w := describeSliding(l.Scale, now, state)
		if made {
			w.ID = takeID(state[0]/l.Scale.Microseconds(), state[3])
		}
		return w
	},
	wait: waitSliding,
}

func describeSliding(scale time.Duration, now int64, state []int64) window.Window {
	start, hits, before := state[0], uint64(state[1]), uint64(state[2])
	length := scale.Microseconds()
	end, left := start+length, min(start+length-now, length)
	weight, more := mulDiv(before, uint64(left), uint64(length))
	if more {
		weight++
	}
	if hits > 0 {
		end += length
	}
	return rest(hits+weight, now, end)
}

func waitSliding(t *window.Take, _ *window.Window, now int64, state []int64) time.Duration {
	start, hits, before := state[0], uint64(state[1]), uint64(state[2])
	length := t.Limit.Scale.Microseconds()
	room := t.Limit.Max - t.N
	if hits > room { // not until the next aligned window, in which these are the hits before
		start, hits, before = start+length, 0, hits
	}
	weight, _ := mulDiv(room-hits, uint64(length), max(before, room-hits, 1)) // how long before its end they fit
	return time.Duration(start+length-int64(weight)-now) * time.Microsecond
}
