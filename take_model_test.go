package throttr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/window"
)

// rule is a rule of takes and give-backs that a run leaves out.
type rule string

const (
	allRules        rule = "none"
	ruleOnce        rule = "a give-back is made once, whatever becomes of it"
	ruleSameWindow  rule = "a give-back goes to the window of its take only"
	ruleIdentity    rule = "windows that open in the same instant have different identities"
	ruleUnknownTake rule = "a take of unknown outcome is not given back"
	ruleOneStep     rule = "a take compares and counts in one step"
	ruleAllOrNone   rule = "if one of several takes is refused, the others are undone"
	ruleSettledOnce rule = "a reservation is settled once"
)

const (
	modelLimit = 10
	modelScale = time.Minute
)

// modelWorld is a store of windows, the callers of a RateLimit that uses it, and what they hold. All
// of it is in one goroutine: callers take turns between calls of the store.
type modelWorld struct {
	window.Unimplemented
	rng    *rand.Rand
	off    rule
	faults float64
	now    time.Duration

	windows map[string]*modelWindow
	last    int64
	late    []func() // give-backs that are still on their way
	held    []*holding

	trace     []string
	violation string

	settling sync.Mutex // a reservation of several limits gives back concurrently
}

type modelWindow struct {
	id, serial int64
	start      time.Duration
	count      uint64
	claimed    uint64 // what callers hold or have used
	lost       uint64 // what is counted and nobody has
}

// holding is what a caller has reserved.
type holding struct {
	rv      *throttr.Reservation
	takes   []throttr.Take
	windows []*modelWindow
}

var errLost = errors.New("no answer")

func (w *modelWorld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%3.0fs  ", w.now.Seconds())+fmt.Sprintf(format, args...))
}

// active returns the active window of a key, or nil.
func (w *modelWorld) active(key string) *modelWindow {
	if m := w.windows[key]; m != nil && w.now < m.start+modelScale {
		return m
	}
	return nil
}

func (w *modelWorld) open(key string) *modelWindow {
	w.last++
	m := &modelWindow{id: w.last, serial: w.last, start: w.now}
	if w.off == ruleIdentity {
		m.id = int64(w.now) + 1
	}
	w.windows[key] = m
	return m
}

func (w *modelWorld) state(key string) window.Window {
	m := w.active(key)
	if m == nil {
		return window.Window{}
	}
	return window.Window{Count: m.count, ID: m.id, Left: m.start + modelScale - w.now}
}

// fault reports whether a call is lost, and whether the store executes it all the same.
func (w *modelWorld) fault() (lost, executed bool) {
	return w.rng.Float64() < w.faults, w.rng.IntN(2) == 0
}

func (w *modelWorld) Check(throttr.Limit) (window.Traits, error) { return window.Traits{}, nil }

func (w *modelWorld) Take(ctx context.Context, key string, l throttr.Limit, n uint64) (window.Window, error) {
	windows := make([]window.Window, 1)
	granted, err := w.TakeAll(ctx, []throttr.Take{l.For(key, n)}, windows)
	windows[0].Refused = !granted
	return windows[0], err
}

func (w *modelWorld) TakeAll(_ context.Context, takes []throttr.Take, windows []window.Window) (bool, error) {
	lost, executed := w.fault()
	if lost && !executed {
		return false, errLost
	}
	fits := func(l throttr.Take) bool { return w.state(l.Key).Count+l.N <= l.Limit.Max }
	granted := true
	for _, l := range takes {
		granted = granted && fits(l)
	}
	if w.off == ruleOneStep && w.rng.IntN(3) == 0 {
		w.other() // another caller comes between comparing and counting
	}
	for _, l := range takes {
		if !granted && (w.off != ruleAllOrNone || !fits(l)) {
			break
		}
		m := w.active(l.Key)
		if m == nil {
			m = w.open(l.Key)
		}
		m.count += l.N
		if lost {
			m.lost += l.N
		}
	}
	for i, l := range takes {
		windows[i] = w.state(l.Key)
	}
	if !lost {
		return granted, nil
	}
	if w.off == ruleUnknownTake { // a caller that wants to be tidy
		for _, l := range takes {
			_, _ = w.giveBack(l.Key, w.state(l.Key).ID, l.N)
		}
	}
	return false, errLost
}

func (w *modelWorld) GiveBack(_ context.Context, key string, _ throttr.Limit, n uint64, id int64) (bool, error) {
	w.settling.Lock()
	defer w.settling.Unlock()
	ok, err := w.giveBack(key, id, n)
	for range 2 {
		if err != nil && w.off == ruleOnce {
			ok, err = w.giveBack(key, id, n)
		}
	}
	return ok, err
}

// giveBack gives back now, later, or not at all.
func (w *modelWorld) giveBack(key string, id int64, n uint64) (ok bool, err error) {
	execute := func() {
		m := w.active(key)
		if ok = m != nil && (m.id == id || w.off == ruleSameWindow); ok {
			m.count -= min(n, m.count)
			m.lost -= min(n, m.lost)
			w.logf("window %d of %s gets %d back, its count is %d", m.serial, key, n, m.count)
		}
	}
	if lost, executed := w.fault(); lost {
		w.logf("the give-back of %d to %s is not answered", n, key)
		if executed {
			w.late = append(w.late, execute)
		}
		return false, errLost
	}
	execute()
	return ok, nil
}

// Charge would count an overrun. The model has none.
func (w *modelWorld) Charge(context.Context, string, throttr.Limit, uint64) (window.Window, error) {
	panic("an overrun")
}

func (w *modelWorld) Set(_ context.Context, key string, _ throttr.Limit, n uint64) (window.Window, error) {
	w.open(key).count, w.windows[key].lost = n, n
	return w.state(key), nil
}

func (w *modelWorld) Reset(_ context.Context, key string, _ throttr.Limit) error {
	delete(w.windows, key)
	return nil
}

// run lets callers do something at random, and checks after each step that no window has given out
// more than its limit, and that nothing is given out that is not counted.
func (w *modelWorld) run(steps int) {
	limiter := throttr.NewRateLimit(w)
	for range steps {
		w.step(limiter)
		if w.violation != "" {
			return
		}
	}
	for len(w.late) > 0 {
		w.executeLate()
		w.check()
	}
}

func (w *modelWorld) step(limiter *throttr.RateLimit) {
	ctx, key := context.Background(), string(rune('a'+w.rng.IntN(2)))
	switch w.rng.IntN(20) {
	case 0:
		w.now += time.Duration(w.rng.IntN(40)) * time.Second
	case 1:
		w.logf("Reset %s", key)
		_ = limiter.Reset(ctx, key, modelScale)
	case 2:
		w.logf("Set %s", key)
		_, _ = limiter.Set(ctx, key, modelScale, w.rng.Uint64N(3))
	case 3, 4:
		if len(w.late) > 0 {
			w.executeLate()
		}
	case 5:
		if len(w.held) > 0 { // somebody dies: what it holds stays counted, and may have been used
			w.held = w.held[1:]
		}
	case 6, 7, 8, 9, 10, 11:
		w.settle(ctx)
	default:
		w.reserve(ctx, limiter)
	}
	w.check()
}

// other is a step of another caller, between two parts of a take.
func (w *modelWorld) other() {
	off := w.off
	w.off = allRules
	w.reserve(context.Background(), throttr.NewRateLimit(w))
	w.off = off
}

func (w *modelWorld) reserve(ctx context.Context, limiter *throttr.RateLimit) {
	limit := throttr.Limit{Max: modelLimit, Scale: modelScale}
	h := &holding{takes: []throttr.Take{limit.For("a", 1+w.rng.Uint64N(7))}}
	if w.rng.IntN(2) == 0 {
		h.takes = append(h.takes, limit.For("b", 1+w.rng.Uint64N(7)))
	}
	var ok bool
	var err error
	if h.rv, ok, err = limiter.Reserve(ctx, h.takes...); err != nil || !ok {
		w.logf("%s is not granted: %v", describe(h.takes), err)
		return
	}
	for _, l := range h.takes {
		m := w.windows[l.Key]
		m.claimed += l.N
		h.windows = append(h.windows, m)
	}
	w.logf("%s is granted", describe(h.takes))
	w.held = append(w.held, h)
}

// settle commits or cancels a reservation.
func (w *modelWorld) settle(ctx context.Context) {
	if len(w.held) == 0 {
		return
	}
	i := w.rng.IntN(len(w.held))
	h := w.held[i]
	w.held = append(w.held[:i:i], w.held[i+1:]...)
	var used []uint64
	for j, l := range h.takes {
		n := w.rng.Uint64N(l.N + 1)
		used = append(used, n)
		h.windows[j].claimed -= l.N - n
		h.windows[j].lost += l.N - n // until it is given back
	}
	w.logf("%s is settled with %v", describe(h.takes), used)
	_ = h.rv.Commit(ctx, used...)
	if w.rng.IntN(2) == 0 {
		_ = h.rv.Cancel(ctx) // a deferred one
	}
	if w.off == ruleSettledOnce { // a reservation that has no memory
		for j, l := range h.takes {
			_, _ = w.giveBack(l.Key, h.windows[j].id, l.N-used[j])
		}
	}
}

func (w *modelWorld) executeLate() {
	i := w.rng.IntN(len(w.late))
	execute := w.late[i]
	w.late = append(w.late[:i:i], w.late[i+1:]...)
	execute()
}

func (w *modelWorld) check() {
	for key, m := range w.windows {
		switch {
		case w.violation != "":
		case m.claimed > modelLimit:
			w.violation = fmt.Sprintf("window %d of %s has given out %d of %d", m.serial, key, m.claimed, modelLimit)
		case m.claimed > m.count:
			w.violation = fmt.Sprintf("window %d of %s has given out %d, and counts %d", m.serial, key, m.claimed, m.count)
		case m.claimed+m.lost != m.count:
			w.violation = fmt.Sprintf("window %d of %s counts %d: %d are given out, and %d lost", m.serial, key, m.count, m.claimed, m.lost)
		}
	}
}

func describe(takes []throttr.Take) string {
	parts := make([]string, len(takes))
	for i, l := range takes {
		parts[i] = fmt.Sprintf("%d of %s", l.N, l.Key)
	}
	return strings.Join(parts, " and ")
}

func simulateTakes(seed uint64, off rule) *modelWorld {
	w := &modelWorld{rng: rand.New(rand.NewPCG(seed, 7)), off: off, windows: map[string]*modelWindow{}}
	w.faults = []float64{0, 0.1, 0.3}[w.rng.IntN(3)]
	w.run(60)
	return w
}

// Callers reserve, settle and die; answers are lost and give-backs are late; windows end, and are set
// and reset. No window gives out more than its limit, and what it counts is given out or lost.
func TestModelOfTakes(t *testing.T) {
	for seed := range uint64(3000) {
		if w := simulateTakes(seed, allRules); w.violation != "" {
			t.Fatalf("run %d: %s\n%s", seed, w.violation, strings.Join(w.trace, "\n"))
		}
	}
}

// Without any of the rules, the model finds a trace that violates what holds.
func TestEachRuleOfTakesIsNeeded(t *testing.T) {
	for _, off := range []rule{
		ruleOnce, ruleSameWindow, ruleIdentity, ruleUnknownTake, ruleOneStep, ruleAllOrNone, ruleSettledOnce,
	} {
		t.Run(string(off), func(t *testing.T) {
			for seed := range uint64(3000) {
				if w := simulateTakes(seed, off); w.violation != "" {
					t.Logf("run %d:\n%s\n%s", seed, strings.Join(w.trace, "\n"), w.violation)
					return
				}
			}
			t.Fatal("no run violates anything")
		})
	}
}
