package backendtest

import (
	"slices"
	"testing"
	"time"

	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

// result is what a step of a vector returns. What is missing is left open by the algorithm.
type result struct {
	step
	Granted bool // of a hit, take or peek; what give_back returns
	Count   *uint64
	Retry   duration  // the RetryAfter of a hit, take or peek that is refused; not of fixed windows
	Left    *duration // of the window; 0 if there is none
}

// Backends are compared with the model, and the model with results that do not come from it.
func TestTheModelAgreesWithVectors(t *testing.T) {
	for _, a := range algorithmOf {
		t.Run(a.String(), func(t *testing.T) {
			clock := NewClock()
			store := memory.New(memory.WithClock(clock.Now))
			defer store.Close()
			s := newSuite(t, Subject{Backend: store, Clock: clock, Algorithm: a})
			var vectors []vector
			var results []struct {
				Why   string
				Steps []result
			}
			s.readVectors(a.String(), &vectors)
			s.readVectors(a.String(), &results)
			for i, v := range vectors {
				for j, got := range s.replay(&v) {
					if want := results[i].Steps[j]; !want.agrees(got, a) {
						t.Errorf("vector %q, step %d: %+v returns %v: %s", v.Name, j+1, want, got, results[i].Why)
					}
				}
			}
		})
	}
}

// agrees compares an answer with the result of a step.
func (want *result) agrees(got answer, a window.Algorithm) bool {
	switch want.Op {
	case "give_back":
		return got.ok == want.Granted
	case "hit", "take", "peek":
		granted := !got.Refused && (want.Op != "hit" || a.Rolling() || got.Count <= want.Limit)
		if granted != want.Granted || a.Rolling() && got.RetryAfter != time.Duration(want.Retry) {
			return false
		}
	}
	return (want.Count == nil || got.Count == *want.Count) && (want.Left == nil || got.Left == time.Duration(*want.Left))
}

// answered is what a claim of a vector returns.
type answered struct {
	flightStep
	Granted               []bool
	Used                  uint64
	Waiting               *uint64  // missing: of no interest
	Next                  duration // up to which places come back; 0: of no interest
	Lost, Forgotten, Late bool
	Why                   string
}

func TestTheLedgerAgreesWithVectors(t *testing.T) {
	clock := NewClock()
	store := memory.New(memory.WithClock(clock.Now))
	defer store.Close()
	s := newSuite(t, Subject{Backend: store, Clock: clock})
	var flights []flightVector
	var results []struct{ Steps []answered }
	s.readVectors("in-flight", &flights)
	s.readVectors("in-flight", &results)
	for i, f := range flights {
		for j, got := range s.replayClaims(&f) {
			want := &results[i].Steps[j]
			same := slices.Equal(grants(got, &window.Claim{Wants: want.Wants}), want.Granted) && got.Used == want.Used &&
				got.Lost == want.Lost && got.Forgotten == want.Forgotten && got.Late == want.Late &&
				(want.Waiting == nil || got.Waiting == *want.Waiting) &&
				(want.Next == 0 || got.Next > 0 && got.Next <= time.Duration(want.Next))
			if !same {
				t.Errorf("vector %q, step %d: %+v returns %+v: %s", f.Name, j+1, want.flightStep, got, want.Why)
			}
		}
	}
}
