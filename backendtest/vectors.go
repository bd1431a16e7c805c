package backendtest

import (
	"embed"
	"encoding/json"
	"time"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

//go:embed testdata
var vectorFiles embed.FS

// vector is a sequence of calls on a virtual clock. The files have the results, too: of rolling algorithms they were
// worked out by hand, of fixed windows they were recorded from another implementation. The model agrees with them, and
// backends are compared with the model.
type vector struct {
	Name  string
	Steps []step
}

// step is a call. T is since the start of the vector.
type step struct {
	T     duration
	Op    string // hit, take, peek, charge, set, get, reset or give_back
	Key   string
	Scale duration
	Limit uint64
	Burst uint64
	N     uint64
	As    string // the name of a take, for give_back
	Of    string // the name of the take that give_back gives back to
}

// ops are the methods of ops.
var ops = map[string]method{
	"hit": hit, "take": take, "peek": peek, "charge": charge, "set": set, "get": peek, "reset": reset,
	"give_back": giveBack,
}

// duration is a time.Duration that is written like 1.5s, or "never".
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*d = duration(window.Never)
		return nil
	}
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// readVectors reads a file of testdata into what a pointer points to.
func (s *suite) readVectors(name string, into any) {
	s.Helper()
	text, err := vectorFiles.ReadFile("testdata/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// testVectors replays the vectors of the backend's algorithm, each with a key of its own.
func testVectors(s *suite) {
	var all []vector
	s.readVectors(s.Algorithm.String(), &all)
	for _, v := range all {
		most := uint64(0)
		for _, step := range v.Steps {
			most = max(most, step.Limit, step.Burst, step.N)
		}
		if s.bounded(most) < most {
			s.Logf("vector %q is not replayed: it has the number %d", v.Name, most)
			continue
		}
		s.replay(&v)
	}
}

// unitOf returns how long a nanosecond of the vector takes: more for backends that have no short scales, or if the
// vector is finer than the resolution of the backend's clock.
func (s *suite) unitOf(v *vector) time.Duration {
	unit, precision := s.unit/time.Millisecond, s.precision()
	for _, step := range v.Steps {
		if s.Algorithm.Rolling() && precision > 0 && time.Duration(step.T)*unit%precision != 0 {
			unit *= precision
		}
	}
	return unit
}

// replay makes the calls of a vector, and returns the answers. It begins at a multiple of the scale.
func (s *suite) replay(v *vector) (answers []answer) {
	unit, ids := s.unitOf(v), map[string]int64{} // of takes, by their names
	aligned := s.count("").in(time.Duration(v.Steps[0].Scale) * unit).of(window.AlignedWindow)
	s.Clock.Advance(new(record).call(algorithm.Charge, &aligned.limit, 1, s.now()).Left)
	start := s.Clock.Now()
	for i, step := range v.Steps {
		s.Clock.Advance(start.Add(time.Duration(step.T) * unit).Sub(s.Clock.Now()))
		before := s.Clock.Now()
		c := s.count(v.Name + step.Key).in(time.Duration(step.Scale) * unit).upTo(step.Limit).withBurst(step.Burst)
		call := c.call(ops[step.Op], step.N)
		call.id = ids[step.Of]
		a := s.do(call)
		if s.Failed() {
			s.Fatalf("vector %q, step %d", v.Name, i+1)
		}
		ids[step.As] = a.ID
		start = start.Add(s.Clock.Now().Sub(before)) // a Set can take some time
		answers = append(answers, a)
	}
	return answers
}
