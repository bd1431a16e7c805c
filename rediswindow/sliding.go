package rediswindow

import (
	"strconv"
	"time"

	"github.com/throttr-go/throttr/window"
)

// sliding keeps sliding windows. See sliding.lua for what is stored.
type sliding struct{}

var slidingScripts = newRollingScripts(":sliding", slidingLua, 4)

func (sliding) scripts() *rollingScripts { return slidingScripts }

func (sliding) check(string, uint64) error { return nil }

func (sliding) appendTake(args []string, l *window.Limit) []string { return appendLimit(args, l) }

// appendLimit appends scale, limit and n.
func appendLimit(args []string, l *window.Limit) []string {
	return append(args, strconv.FormatInt(l.Scale.Microseconds(), 10), strconv.FormatUint(l.Limit, 10),
		strconv.FormatUint(min(l.N, MaxCount+1), 10)) // more than the limit is refused in any case
}

func (s sliding) taken(l *window.Limit, made bool, now int64, state []int64) window.Window {
	w := s.counted(l.Scale, now, state)
	if made {
		w.ID = takeID(state[0]/l.Scale.Microseconds(), state[3])
	}
	return w
}

func (sliding) counted(scale time.Duration, now int64, state []int64) window.Window {
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

func (sliding) wait(l *window.Limit, now int64, state []int64) time.Duration {
	start, hits, before := state[0], uint64(state[1]), uint64(state[2])
	length := l.Scale.Microseconds()
	room := l.Limit - l.N
	if hits > room { // not until the next aligned window, in which these are the hits before
		start, hits, before = start+length, 0, hits
	}
	weight, _ := mulDiv(room-hits, uint64(length), max(before, room-hits, 1)) // how long before its end they fit
	return time.Duration(start+length-int64(weight)-now) * time.Microsecond
}
