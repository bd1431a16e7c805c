package slot

import (
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr/internal/testkit/race"
)

var (
	runs  = flag.Uint64("slot.runs", 20000, "runs of the model")
	first = flag.Uint64("slot.first", 1, "seed of the first run; the next one has the next seed")
	seed  = flag.Uint64("slot.seed", 0, "seed of the only run, whose trace is logged")
)

// longestWait is for how many guards at most a hit can find no open window and open none, if
// requests are fast, none is lost, and no record has expired.
const longestWait = 8

// settings are those of one run.
type settings struct {
	scale       time.Duration
	largest     uint64
	parked      bool
	late        time.Duration // for how long a record can be used after its expiry (H2)
	size        int           // number of clients
	steps       int           // hits of each
	limit       uint64
	largestHit  uint64
	faultRate   float64
	deathRate   float64
	deaths      int
	restarts    int
	resetRate   float64
	returnRate  float64
	laterRate   float64 // of hits that are returned to the window with an ID
	emptyRate   float64 // of hits of 0
	discardRate float64
	lateRate    float64       // of hits that are executed after the end of their window
	restless    time.Duration // how often janitors clean at least, if not 0
	quick       bool          // no request takes long
	slow        Kind          // calls of this kind take long, if not Look
	atEnd       float64       // how often clients come at the end of a window
	atDoom      float64       // how often they come otherwise when a slot becomes doomed
	off         [rules]bool
}

// scales are the bands of the runs: fine, coarse, and as coarse as can be.
var scales = []struct {
	scale   time.Duration
	largest uint64
}{
	{time.Second, math.MaxUint16},
	{10 * time.Second, math.MaxUint16},
	{200 * time.Millisecond, math.MaxUint32},
	{time.Second, math.MaxUint8},
	{10 * time.Second, math.MaxUint8},
	{4 * time.Minute, math.MaxUint8},
	{24 * time.Hour, math.MaxUint8},
}

// random returns random settings.
func random(rng *rand.Rand) settings {
	p := func(rates ...float64) float64 { return rates[rng.IntN(len(rates))] }
	sc := scales[rng.IntN(len(scales))]
	limit, largestHit := 1+rng.Uint64N(4), 1+rng.Uint64N(2)
	if sc.largest == math.MaxUint8 && rng.IntN(10) == 0 {
		limit, largestHit = 100, 120 // counters are exhausted
	}
	return settings{
		scale: sc.scale, largest: sc.largest,
		parked: rng.IntN(2) == 0,
		size:   2 + rng.IntN(3),
		steps:  3 + rng.IntN(8),
		limit:  limit, largestHit: largestHit,
		faultRate: p(0, 0.02, 0.1),
		deathRate: 0.05, deaths: rng.IntN(4),
		restarts:    max(0, rng.IntN(6)-4),
		resetRate:   p(0, 0.1, 0.4),
		returnRate:  p(0, 0.5),
		laterRate:   p(0, 0.5),
		emptyRate:   p(0, 0, 0.5),
		discardRate: p(0, 0, 0.5),
		late:        time.Duration(p(0, 0, 5)) * time.Second,
		lateRate:    p(0, 0.1, 0.3),
		atEnd:       p(0.2, 0.6),
		atDoom:      p(0, 0.2, 0.5),
		quick:       rng.IntN(4) == 0,
	}
}

// simulate runs the model once.
func simulate(seed uint64, tracing bool, change func(*settings)) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := random(rng)
	if change != nil {
		change(&s)
	}
	w := &world{rng: rng, settings: s, tracing: tracing}
	w.bands, _ = BandsFor(s.scale, s.largest)
	if s.off[ruleGuardHalf] {
		w.bands.Guard = s.scale * 9 / 10
	}
	w.server.world = w
	w.deaths = min(w.deaths, s.size-1)
	for i := range s.size {
		c := &client{world: w, name: "c" + string('1'+rune(i))}
		w.clients = append(w.clients, c)
		w.start(c, c.name, c.hits)
		w.start(c, c.name+" (janitor)", c.janitor)
	}
	for range s.restarts {
		w.schedule(event{at: w.upTo(5 * s.scale), do: w.server.restart})
	}
	w.run()
	w.server.advance()
	if w.violation == "" && w.died == 0 && (w.server.usable(A) || w.server.usable(B)) {
		w.fail("records are left: A is %s, B is %s", w.server.format(A), w.server.format(B))
	}
	return w
}

// totals are the sums of many runs.
type totals struct {
	runs, windows, empty, returned, expiredAlive int
	longest                                      float64 // wait, in guards
}

// simulateAll makes runs with successive seeds, none of which may violate an invariant.
func simulateAll(t *testing.T, first, runs uint64, change func(*settings)) (sum totals) {
	for seed := first; seed < first+runs; seed++ {
		w := simulate(seed, false, change)
		if w.violation != "" {
			w = simulate(seed, true, change)
			t.Fatalf("%s\n%+v\n%v\n-slot.seed=%d", w.violation, w.settings, w, seed)
		}
		sum.runs++
		sum.windows += w.server.windows
		sum.empty += w.server.empty
		sum.returned += w.returned
		if w.died == 0 {
			sum.expiredAlive += w.server.expired
		}
		if w.quick && w.server.expired == 0 {
			sum.longest = max(sum.longest, float64(w.longest)/float64(w.bands.Guard))
		}
	}
	t.Logf("%+v", sum)
	require.Less(t, sum.longest, float64(longestWait), "a key has no window for too long")
	return sum
}

// TestModel runs the model with all rules.
func TestModel(t *testing.T) {
	if *seed != 0 {
		w := simulate(*seed, true, nil)
		t.Logf("%+v\n%+v\n%v", w.settings, w.bands, w)
		require.Empty(t, w.violation)
		return
	}
	runs := *runs
	if os.Getenv("THROTTR_SLOW_TESTS") != "1" {
		runs /= 10
	}
	sum := simulateAll(t, *first, runs, nil)
	require.Greater(t, sum.returned, sum.runs/20)
	require.LessOrEqual(t, sum.expiredAlive, 1+sum.runs/2000, "records expire although all clients live")
}

// A window whose count is 0 at its end leaves a slot that looks free, beside the other one, which
// is free. That costs the next window a guard, and nothing else: no window is over its limit.
func TestWindowsThatEndWithoutHits(t *testing.T) {
	sum := simulateAll(t, *first, *runs/10, func(s *settings) {
		late(s)
		s.size, s.returnRate, s.emptyRate, s.largestHit = 4, 1, 0.5, 1
	})
	require.Greater(t, sum.empty, sum.windows/5)
}

// TestModelUnderEachFocus runs the model with all rules, and with what they are about more frequent.
func TestModelUnderEachFocus(t *testing.T) {
	if race.Enabled {
		t.Skip("it has one goroutine")
	}
	for i, focus := range []func(*settings){
		cuts, tornLookups, exhausted, manyResets, lateResets, manyReturns, laterReturns, manyRestarts, idleSlots,
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) { simulateAll(t, *first, *runs/400, focus) })
	}
}
