package conn

import "time"

// watchdogChecks is the number of checks without progress that make a stall.
const watchdogChecks = 4

// watchdog notices that responses are due and nothing comes. It checks four times per
// timeout, and only while something is due, so that a request costs no timer. It has no
// mutex; that of its writeQueue guards it.
type watchdog struct {
	timeout  time.Duration
	run      func() // calls check; the timer runs it
	timer    *time.Timer
	armed    bool
	progress uint64 // counts reads
	seen     uint64 // progress at the last check
	checks   int    // checks since there was progress
}

// arm starts the checks, unless they are running.
func (w *watchdog) arm() {
	if w.armed {
		return
	}
	w.armed = true
	w.seen = w.progress
	w.checks = 0
	if w.timer == nil {
		w.timer = time.AfterFunc(w.timeout/watchdogChecks, w.run)
	} else {
		w.timer.Reset(w.timeout / watchdogChecks)
	}
}

// stop ends the checks for good.
func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.armed = true
}

// check returns true if the timeout has passed without progress. Due says whether
// responses are due; the checks end if not.
func (w *watchdog) check(due bool) (stalled bool) {
	if !due {
		w.armed = false
		return false
	}
	if w.seen != w.progress {
		w.seen, w.checks = w.progress, 0
	} else if w.checks++; w.checks >= watchdogChecks {
		return true
	}
	w.timer.Reset(w.timeout / watchdogChecks)
	return false
}
