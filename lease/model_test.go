package lease

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"
)

// The model: processes that share windows at a store, on one clock, in steps that anything can happen
// between. Requests and answers travel for some time, and can be lost; processes stop and die; others
// reset windows. All decisions are those of decide.go. After a run, nothing was allowed beyond a limit, or
// after the end of a window.

// rule is a rule that a run leaves out.
type rule string

const (
	none           rule = ""
	placeFirst     rule = "the clock is read after the place is taken"
	fromSending    rule = "blocks live from when their take was sent, and not from its answer"
	precisionRule  rule = "the precision of the end is subtracted"
	driftRule      rule = "the clocks may differ"
	oneStep        rule = "what is left of a block is taken in one step"
	once           rule = "a give-back is never repeated"
	sameWindow     rule = "only the window that was taken from gets places back"
	ownLimit       rule = "a block serves one limit"
	ageRule        rule = "blocks end with their age"
	dropping       rule = "an own Reset drops the blocks"
	droppingFlight rule = "an own Reset drops what is under way"
)

var rules = []rule{placeFirst, fromSending, precisionRule, driftRule, oneStep, once, sameWindow, ownLimit, ageRule,
	dropping, droppingFlight}

const modelLimits = 2

// retired is what is spent of a block of which nobody gets places any more.
const retired = 1 << 62

// modelLimit are the limits of the callers. The windows are the same.
var modelLimit = [modelLimits]uint64{20, 12}

// modelWindow is a window at the store.
type modelWindow struct {
	id         int64
	start, end time.Duration // end: unless it was reset
	reset      time.Duration // 0: it was not
	count      uint64
	allowed    [modelLimits]uint64 // to callers of each limit
}

// modelBlock is a block of a process.
type modelBlock struct {
	id          int64
	limit       int // of modelLimit
	size, first uint64
	spent       uint64
	until       time.Duration // of the process's clock
	window      *modelWindow
	drops       int
}

// modelProcess is a process. Its clock is ahead, and a little fast or slow.
type modelProcess struct {
	ahead  time.Duration
	speed  float64
	blocks [modelLimits]*modelBlock
	asking [modelLimits]bool
	drops  int
	dead   bool
	resets map[int64]time.Duration // when its own Reset of a window had been answered
}

// event is a step that is due.
type event struct {
	at  time.Duration
	run func()
}

type modelRun struct {
	rand    *rand.Rand
	without rule

	scale, age, precision time.Duration

	now     time.Duration
	events  []event
	windows []*modelWindow
	open    *modelWindow
	procs   []*modelProcess
	traced  bool
	trace   []string
	fault   string
}

func (m *modelRun) log(format string, args ...any) {
	if !m.traced {
		return
	}
	m.trace = append(m.trace, fmt.Sprintf("%8v  ", m.now.Truncate(10*time.Microsecond))+fmt.Sprintf(format, args...))
}

// after runs a step after a time.
func (m *modelRun) after(d time.Duration, run func()) {
	e := event{m.now + d, run}
	i := sort.Search(len(m.events), func(i int) bool { return m.events[i].at > e.at })
	m.events = slices.Insert(m.events, i, e)
}

// way is how long something travels or a process takes. Now and then that is long.
func (m *modelRun) way() time.Duration {
	switch m.rand.IntN(12) {
	case 0:
		return time.Duration(m.rand.Int64N(int64(m.scale / 2)))
	case 1, 2, 3:
		return 0
	default:
		return time.Duration(m.rand.Int64N(int64(m.scale / 64)))
	}
}

// pause is how long a process stops between two steps.
func (m *modelRun) pause() time.Duration {
	if m.rand.IntN(10) == 0 {
		return time.Duration(m.rand.Int64N(int64(m.scale)))
	}
	return 0
}

func (p *modelProcess) clock(now time.Duration) time.Duration {
	return time.Duration(float64(now)*p.speed) + p.ahead
}

// window returns the open window of the store.
func (m *modelRun) window() *modelWindow {
	if m.open != nil && m.now >= m.open.end {
		m.open = nil
	}
	return m.open
}

// take is a take at the store.
func (m *modelRun) take(limit, n uint64) (w *modelWindow, granted bool) {
	w = m.window()
	if w == nil {
		w = &modelWindow{id: int64(len(m.windows) + 1), start: m.now, end: m.now + m.scale}
		m.windows, m.open = append(m.windows, w), w
	}
	if w.count+n > limit {
		return w, false
	}
	w.count += n
	return w, true
}

// ask lets a process take a block.
func (m *modelRun) ask(p *modelProcess, limit int, n uint64) {
	p.asking[limit] = true
	sent, drops := p.clock(m.now), p.drops
	if m.rand.IntN(20) == 0 { // the request is lost
		m.after(m.way(), func() { p.asking[limit] = false })
		return
	}
	m.after(m.way(), func() {
		w, granted := m.take(modelLimit[limit], n)
		m.log("store: take of %d within %d of window %d: %v, count %d", n, modelLimit[limit], w.id, granted, w.count)
		left, count := w.end-m.now, w.count
		left += time.Duration(m.rand.Int64N(int64(m.precision + 1)))
		lost := m.rand.IntN(20) == 0
		m.after(m.way(), func() {
			p.asking[limit] = false
			if lost || p.dead {
				return
			}
			if !granted {
				if less, ok := smaller(n, 1, modelLimit[limit], count); ok {
					m.ask(p, limit, less)
				}
				return
			}
			m.install(p, &modelBlock{id: w.id, limit: limit, size: n, first: count - n, window: w, drops: drops}, sent, left)
		})
	})
}

// install makes a block that was taken the block of a process.
func (m *modelRun) install(p *modelProcess, b *modelBlock, sent, left time.Duration) {
	if m.without == fromSending {
		sent = p.clock(m.now)
	}
	precision := m.precision
	if m.without == precisionRule {
		precision = 0
	}
	if m.without == driftRule {
		left += left / drift
	}
	dies := diesAt(sent, left, precision)
	b.until = untilOf(sent, dies, m.age)
	if m.without == ageRule {
		b.until = dies
	}
	if b.drops != p.drops && m.without != droppingFlight {
		m.retire(p, b)
		return
	}
	old := p.blocks[b.limit]
	p.blocks[b.limit] = b
	if old != nil {
		m.retire(p, old)
	}
}

// retire takes what is left of a block and gives it back.
func (m *modelRun) retire(p *modelProcess, b *modelBlock) {
	left := b.size - min(b.spent, b.size)
	back := func() {
		if left > 0 {
			m.giveBack(p, b, left)
		}
	}
	if m.without == oneStep { // others take places in between
		m.after(m.pause(), func() {
			b.spent = retired
			back()
		})
		return
	}
	b.spent = retired
	back()
}

// giveBack gives n places back.
func (m *modelRun) giveBack(p *modelProcess, b *modelBlock, n uint64) {
	lost := m.rand.IntN(4) == 0
	m.after(m.way(), func() {
		w := m.window()
		if w == nil || w != b.window && m.without != sameWindow {
			return
		}
		w.count -= min(n, w.count)
		m.log("store: %d given back to window %d, count %d", n, w.id, w.count)
		if lost && m.without == once && !p.dead {
			m.giveBack(p, b, n)
		}
	})
}

// hit lets a process make a hit.
func (m *modelRun) hit(p *modelProcess, limit int) {
	own := limit
	if m.without == ownLimit && p.blocks[1-limit] != nil && m.rand.IntN(2) == 0 {
		own = 1 - limit
	}
	b, begun := p.blocks[own], m.now
	early := p.clock(m.now) // without the rule
	m.after(m.pause(), func() { m.place(p, b, limit, begun, early) })
}

// place takes a place of a block, and decides on the hit when the process goes on.
func (m *modelRun) place(p *modelProcess, b *modelBlock, limit int, begun, early time.Duration) {
	if p.dead {
		return
	}
	if b == nil || b.spent >= b.size {
		if !p.asking[limit] {
			m.ask(p, limit, blockSize(1+m.rand.Uint64N(16), 1, 0, modelLimit[limit], 8))
		}
		return
	}
	b.spent++
	place := b.first + b.spent
	m.after(m.pause(), func() {
		now := p.clock(m.now)
		if m.without == placeFirst {
			now = early
		}
		if p.dead || now >= b.until {
			if !p.dead {
				m.giveBack(p, b, 1)
			}
			return
		}
		m.allow(p, b, limit, place, begun)
	})
}

// allow allows a hit, and checks it.
func (m *modelRun) allow(p *modelProcess, b *modelBlock, limit int, place uint64, begun time.Duration) {
	w := b.window
	m.log("place %d of window %d is allowed with limit %d", place, w.id, modelLimit[limit])
	w.allowed[limit]++
	switch {
	case m.now >= w.end:
		m.fail("place %d of window %d is used %v after its end", place, w.id, m.now-w.end)
	case w.reset > 0 && time.Duration(float64(m.now-w.reset)*(1-2.0/drift)) >= m.age:
		m.fail("place %d of window %d is used %v after its Reset", place, w.id, m.now-w.reset)
	case place > modelLimit[limit]:
		m.fail("place %d is used with limit %d", place, modelLimit[limit])
	}
	if done, ok := p.resets[w.id]; ok && begun > done {
		m.fail("window %d is used after an own Reset", w.id)
	}
	for i, most := range modelLimit { // callers with limits of at most one of them
		sum := uint64(0)
		for j, other := range modelLimit {
			if other <= most {
				sum += w.allowed[j]
			}
		}
		if sum > most {
			m.fail("%d are allowed in window %d, whose limit is %d", sum, w.id, modelLimit[i])
		}
	}
}

func (m *modelRun) fail(format string, args ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, args...)
		m.log("FAULT: %s", m.fault)
	}
}

// reset resets the window, for a process.
func (m *modelRun) reset(i int) {
	p := m.procs[i]
	drop := func() {
		if m.without != dropping {
			for j, b := range p.blocks {
				if p.blocks[j] = nil; b != nil {
					m.retire(p, b)
				}
			}
		}
		p.drops++
	}
	drop()
	m.after(m.way(), func() {
		w := m.window()
		m.log("store: Reset by process %d", i)
		if w != nil {
			w.reset = m.now
			m.open = nil
		}
		m.after(m.way(), func() {
			drop()
			if w != nil {
				p.resets[w.id] = m.now
			}
		})
	})
}

// run makes random steps and returns the fault, or "".
func (m *modelRun) run(steps int) string {
	m.scale = []time.Duration{time.Second, 100 * time.Second}[m.rand.IntN(2)]
	m.age = []time.Duration{m.scale / 3, 10 * m.scale}[m.rand.IntN(2)]
	m.precision = []time.Duration{0, m.scale / 50}[m.rand.IntN(2)]
	for range 3 {
		m.procs = append(m.procs, &modelProcess{
			ahead: time.Duration(m.rand.Int64N(int64(time.Hour))), speed: 1 + (m.rand.Float64()-0.5)/drift,
			resets: map[int64]time.Duration{},
		})
	}
	for range steps {
		if m.fault != "" {
			break
		}
		// The next thing is something that is due, or something new.
		if len(m.events) > 0 && (m.events[0].at <= m.now || m.rand.IntN(2) == 0) {
			e := m.events[0]
			m.events = m.events[1:]
			m.now = max(m.now, e.at)
			e.run()
			continue
		}
		step := time.Duration(m.rand.Int64N(int64(m.scale / 100)))
		if len(m.events) > 0 {
			step = min(step, m.events[0].at-m.now)
		}
		m.now += step
		m.something()
	}
	return m.fault
}

// something lets a process do something.
func (m *modelRun) something() {
	i := m.rand.IntN(len(m.procs))
	p := m.procs[i]
	limit := m.rand.IntN(modelLimits)
	switch b := p.blocks[limit]; {
	case p.dead:
		if m.rand.IntN(20) == 0 {
			m.procs[i] = &modelProcess{ahead: p.ahead, speed: p.speed, resets: map[int64]time.Duration{}}
		}
	case m.rand.IntN(100) == 0:
		m.reset(i)
	case m.rand.IntN(150) == 0:
		m.log("process %d dies", i)
		p.dead = true
	case m.rand.IntN(30) == 0 && b != nil:
		p.blocks[limit] = nil // idle
		m.retire(p, b)
	default:
		for range 1 + m.rand.IntN(3) {
			m.hit(p, limit)
		}
	}
}

func modelOf(seed uint64, without rule) *modelRun {
	return &modelRun{rand: rand.New(rand.NewPCG(seed, 1)), without: without}
}

var modelRuns = flag.Uint64("lease.modelruns", 3000, "runs of TestModelNeverExceedsTheLimit")

func TestModelNeverExceedsTheLimit(t *testing.T) {
	runs := *modelRuns
	if testing.Short() {
		runs /= 10
	}
	for seed := range runs {
		if modelOf(seed, none).run(600) != "" {
			m := modelOf(seed, none)
			m.traced = true
			fault := m.run(600)
			t.Fatalf("seed %d: %s\n%s", seed, fault, strings.Join(m.trace, "\n"))
		}
	}
}

func TestModelFailsWithoutEachRule(t *testing.T) {
	for _, without := range rules {
		t.Run(string(without), func(t *testing.T) {
			for seed := range uint64(20_000) {
				if modelOf(seed, without).run(600) != "" {
					return
				}
			}
			t.Error("nothing is over without it")
		})
	}
}
