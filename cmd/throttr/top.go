package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sync/errgroup"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

const (
	// pauses is how many times as long as a reading of everything took, it is not repeated.
	pauses = 20
	// readers is how many counts are read at one time.
	readers = 16
)

// top reads counts again and again.
type top struct {
	limit *limitFlags
	every time.Duration
	shown int // how many counts a view has
	b     throttr.Backend

	fullest  []*followed // twice as many as are shown
	all      int         // how many counts there were
	next     time.Time   // when to read all of them again
	pause    time.Duration
	readAll  time.Duration // how long that took
	readSome time.Duration // how long it took to read the fullest
}

// followed is a count that is read again and again.
type followed struct {
	throttr.Listed
	read time.Time
	rate *float64 // by how much it changes in a second; nil: not known, as it was read once
}

// watch is the command top.
func watch(e *env, f *flags) action {
	t := &top{limit: limitFlagsOf(f), every: 2 * time.Second, shown: 20}
	f.duration(&t.every, "every", "the `time` between two views (default 2s)")
	number(f, &t.shown, "n", 1, 10_000, "how `many` counts to print (default 20); a terminal shows those that fit")
	once := f.Bool("once", false, "print one view and end")
	return func(ctx context.Context, _ []string) (bool, error) {
		if t.every < 100*time.Millisecond {
			return false, fmt.Errorf("--every %v: must be at least 100ms", t.every)
		}
		b, err := within(ctx, e.timeout, e.open)
		if err != nil {
			return false, err
		}
		defer b.Close()
		t.b = b
		return true, t.run(ctx, e, *once)
	}
}

// run prints views until ctx ends. With once, the first reading is only the base of rates.
func (t *top) run(ctx context.Context, e *env, once bool) error {
	screen, ok := e.stdout.(*os.File)
	if ok && e.out.json == nil && !once && term.IsTerminal(screen.Fd()) {
		e.out.text("\x1b[?1049h") // another screen, until the end
		defer e.out.text("\x1b[?1049l")
	} else {
		screen = nil
	}
	for n := 0; ; n++ {
		_, err := within(ctx, e.timeout, func(ctx context.Context) (bool, error) { return true, t.read(ctx) })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && n == 0:
			return err
		case err != nil:
			printError(e.stderr, "throttr top", err)
		case n > 0 || !once:
			t.print(e.out, screen)
		}
		if err := e.out.flush(); err != nil || once && n > 0 {
			return err
		}
		select {
		case <-time.After(t.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// read reads all counts, or those that were the fullest.
func (t *top) read(ctx context.Context) error {
	start := time.Now()
	if start.Before(t.next) {
		err := t.readFullest(ctx)
		t.readSome = time.Since(start)
		return err
	}
	found, err := t.list(ctx)
	if err != nil {
		return err
	}
	t.fullest = found
	t.readAll = time.Since(start)
	t.pause = max(t.every, pauses*t.readAll)
	t.next = start.Add(t.pause - t.every/2) // readings are not exactly an interval apart
	return nil
}

// countID is what a count belongs to.
type countID struct {
	key   string
	limit throttr.Limit
}

func idOf(c *throttr.Listed) countID { return countID{c.Key, limits.Identity(&c.Limit)} }

// list reads all counts, and returns the fullest.
func (t *top) list(ctx context.Context) ([]*followed, error) {
	before := map[countID]*followed{}
	for _, c := range t.fullest {
		before[idOf(&c.Listed)] = c
	}
	found := map[countID]*followed{} // a store may list a count twice
	t.all = 0
	for c, err := range t.b.List(ctx) {
		if err != nil {
			return nil, err
		}
		if !t.limit.complete(&c) {
			continue
		}
		t.all++
		id := idOf(&c)
		f := before[id]
		if f == nil {
			f = &followed{Listed: c, read: time.Now()}
		} else if found[id] == nil {
			f.update(c.Window, time.Now())
		}
		found[id] = f
		if len(found) >= 8*t.shown {
			keepFullest(found, 2*t.shown)
		}
	}
	return keepFullest(found, 2*t.shown), nil
}

// keepFullest removes all but the n fullest counts, and returns them, the fullest first.
func keepFullest(found map[countID]*followed, n int) []*followed {
	all := slices.SortedFunc(maps.Values(found), compare)
	for _, f := range all[min(n, len(all)):] {
		delete(found, idOf(&f.Listed))
	}
	return all[:min(n, len(all))]
}

// compare compares counts: first the fullest, then by count. Those whose Max is unknown come last.
func compare(a, b *followed) int {
	return cmp.Or(cmp.Compare(usage(&b.Listed), usage(&a.Listed)), cmp.Compare(b.Window.Count, a.Window.Count),
		cmp.Compare(a.Key, b.Key))
}

// readFullest reads the fullest counts. Those whose key is a digest can't be asked for.
func (t *top) readFullest(ctx context.Context) error {
	var all errgroup.Group
	all.SetLimit(readers)
	for _, f := range t.fullest {
		if f.Digest {
			continue
		}
		all.Go(func() error {
			limit := f.Limit
			if limit.Max == 0 || t.limit.f.isSet("limit") {
				limit = largest(t.b, limit) // a full window may be known to be full, and is not read again
			}
			w, err := t.b.Peek(ctx, f.Key, limit, 0)
			if err == nil {
				f.update(w, time.Now())
			}
			return err
		})
	}
	err := all.Wait()
	slices.SortFunc(t.fullest, compare)
	return err
}

// largest returns a limit with the largest Max of the store.
func largest(b throttr.Backend, l throttr.Limit) throttr.Limit {
	l.Max = 1
	traits, _ := b.Check(l) // what is wrong, the next call says
	l.Max = cmp.Or(traits.MaxCount, throttr.Unlimited-1)
	return l
}

// update learns what a count is now.
func (f *followed) update(w window.Window, now time.Time) {
	elapsed := now.Sub(f.read)
	before := f.Window
	same := elapsed < before.Left && w.Count >= before.Count
	past := elapsed // in which the count has become what it is
	if f.Limit.Algorithm.Rolling() {
		same = elapsed < f.Limit.Scale
		past = f.Limit.Scale
	} else if f.Limit.Scale > 0 {
		past = f.Limit.Scale - w.Left // since the window has opened
	}
	f.Window = w
	f.read = now
	switch {
	case same && elapsed > 0:
		rate := (float64(w.Count) - float64(before.Count)) / elapsed.Seconds()
		f.rate = &rate
	case w.Count > 0 && past >= f.Limit.Scale/10 && past > 0: // else too short for a rate: it stays
		rate := float64(w.Count) / past.Seconds()
		f.rate = &rate
	}
}

// rateText formats the rate.
func (f *followed) rateText() string {
	switch {
	case f.rate == nil:
		return unknown
	case *f.rate != 0 && math.Abs(*f.rate) < 10:
		return fmt.Sprintf("%.1f", *f.rate)
	}
	return fmt.Sprintf("%.0f", *f.rate)
}

// cost returns what part of the time the store works for this command, at most.
func (t *top) cost() float64 {
	return t.readAll.Seconds()/t.pause.Seconds() + t.readSome.Seconds()/t.every.Seconds()
}

// costText says what looking costs.
func (t *top) costText() string {
	return fmt.Sprintf("%d counts, read in %s every %s; the fullest %d in %s every %s: at most %.1f%% of the store's time",
		t.all, left(t.readAll), left(t.pause), len(t.fullest), left(t.readSome), left(t.every), 100*t.cost())
}

// open returns the counts of a view: the first n of the fullest that are not over.
func (t *top) open(n int) (all []*followed) {
	for _, f := range t.fullest {
		if f.Window.Left > 0 && len(all) < n {
			all = append(all, f)
		}
	}
	return all
}

// followedLine is the JSON of a count in a view.
type followedLine struct {
	counted
	Rate *float64 `json:"change_per_second,omitempty"`
}

// view is the JSON of what top shows at one time.
type view struct {
	Time   time.Time      `json:"time"`
	Counts int            `json:"counts"` // that there are
	Cost   float64        `json:"cost"`   // what part of the time the store works for it, at most
	Top    []followedLine `json:"top"`
}

// print prints a view: on a screen in place of the one before, else below it.
func (t *top) print(out *output, screen *os.File) {
	switch {
	case screen != nil:
		width, height, err := term.GetSize(screen.Fd())
		if err != nil || width < 1 || height < 1 {
			width, height = 80, 24
		}
		lines := t.lines(height, width)
		out.text("\x1b[H\x1b[2J" + strings.Join(lines[:min(len(lines), height)], "\r\n"))
	case out.json == nil:
		out.text(strings.Join(t.lines(t.shown, math.MaxInt), "\n") + "\n\n")
	default:
		v := view{Time: time.Now().UTC(), Counts: t.all, Cost: t.cost(), Top: []followedLine{}}
		for _, f := range t.open(t.shown) {
			v.Top = append(v.Top, followedLine{countedOf(&f.Listed), f.rate})
		}
		out.add(v)
	}
}

// lines returns a view as lines of at most width.
func (t *top) lines(n, width int) []string {
	var b strings.Builder
	out := newOutput(&b)
	out.text(time.Now().Format("15:04:05") + "  " + t.costText() + "\n\n")
	out.columns(append(slices.Clone(countColumns), "change/s")...)
	for _, f := range t.open(n) {
		out.add(nil, append(countFields(&f.Listed), f.rateText())...)
	}
	out.flush() // to b, which does not fail
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = cutTo(line, width)
	}
	return lines
}
