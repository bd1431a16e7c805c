package slot

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	runs = flag.Int("slot.runs", 20000, "runs of the model")
	seed = flag.Uint64("slot.seed", 0, "the only run of the model, with its trace")
)

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
	discardRate float64
	lateRate    float64       // of hits that are executed after the end of their window
	restless    time.Duration // how often janitors visit at least, if not 0
	quick       bool          // no request takes long
	crowd       float64       // how often clients come at the end of a window
	doom        float64       // how often they come otherwise when a slot becomes doomed
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
		discardRate: p(0, 0, 0.5),
		late:        time.Duration(p(0, 0, 5)) * time.Second,
		lateRate:    p(0, 0.1, 0.3),
		crowd:       p(0.2, 0.6),
		doom:        p(0, 0.2, 0.5),
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
	if w.violation == "" && w.died == 0 && w.server.records != [2]record{} {
		w.server.settle()
		w.fail("records are left: A is %s, B is %s", w.server.show(A), w.server.show(B))
	}
	return w
}

func TestModel(t *testing.T) {
	if *seed != 0 {
		w := simulate(*seed, true, nil)
		t.Logf("%+v\n%+v\n%v", w.settings, w.bands, w)
		if w.violation != "" {
			t.Fatal(w.violation)
		}
		return
	}
	var expired, expiredAlive, windows, violations int
	var hits, granted, denied uint64
	var worst *world
	var worstSeed uint64
	for i := range uint64(*runs) {
		w := simulate(i+1, false, nil)
		if w.violation != "" {
			violations++
			if violations <= 10 {
				t.Errorf("seed %d: %s (%+v)", i+1, w.violation, w.settings)
			}
			continue
		}
		windows += w.server.windows
		hits += uint64(w.hits)
		granted += w.granted
		denied += w.denied
		expired += w.server.expired
		if w.died == 0 {
			expiredAlive += w.server.expired
			if w.server.expired > 0 && expiredAlive < 5 {
				t.Logf("seed %d: expired", i+1)
			}
		}
		if w.quick && w.server.expired == 0 && (worst == nil || w.longest*time.Duration(worst.bands.Guard/time.Millisecond) > worst.longest*time.Duration(w.bands.Guard/time.Millisecond)) {
			worst, worstSeed = w, i+1
		}
	}
	t.Logf("%d violations in %d runs", violations, *runs)
	t.Logf("%d windows, %d hits, %d granted, %d denied, %d expired, %d while all lived", windows, hits, granted, denied, expired, expiredAlive)
	if worst != nil {
		t.Logf("longest hit %v, guard %v, seed %d", worst.longest, worst.bands.Guard, worstSeed)
	}
}
