package conn

import (
	"slices"
	"sync"
	"time"
)

const (
	// sampleEvery is the number of writes of which one is timed.
	sampleEvery = 16
	// manyRequests is how many requests must be in flight for a sample to tell how long each takes.
	manyRequests = 16
	// samples is how many samples an estimate is made of.
	samples = 64
)

// ServiceTime estimates how long a server takes for a request, from requests that are sent anyway: it
// compares how long many of them take that are in flight together with how long one takes. The estimate
// is that of the first quartile, so that it is hardly influenced by what other clients ask for now and
// then. It is safe for concurrent use.
type ServiceTime struct {
	mu    sync.Mutex
	lone  ring // how long single requests took
	each  ring // how long each of many took
	first time.Duration
	grown bool
}

// ring holds the latest samples.
type ring struct {
	all  [samples]time.Duration
	next int
	n    int
}

func (r *ring) add(d time.Duration) {
	r.all[r.next] = d
	r.next = (r.next + 1) % samples
	r.n = min(r.n+1, samples)
}

// quartile returns the first quartile of the samples, and 0 if there are none.
func (r *ring) quartile() time.Duration {
	if r.n == 0 {
		return 0
	}
	sorted := r.all
	slices.Sort(sorted[:r.n])
	return sorted[r.n/4]
}

// add adds a sample: so many requests in flight were responded to within d.
func (s *ServiceTime) add(requests int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case requests <= 2:
		s.lone.add(d)
	case requests >= manyRequests:
		lone := s.lone.quartile()
		s.each.add(max(0, d-lone) / time.Duration(requests))
	}
}

// Get returns the estimate, and 0 if there are too few samples.
func (s *ServiceTime) Get() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.estimate()
}

// estimate returns the estimate. The mutex is held.
func (s *ServiceTime) estimate() time.Duration {
	if s.each.n < samples/4 {
		return 0
	}
	return s.each.quartile()
}

// muchSlower is by how much the time must have grown to be reported.
const muchSlower = 3

// HasGrown reports, once, that the estimate is three times as long as the first one that all samples
// were there for.
func (s *ServiceTime) HasGrown() (first, now time.Duration, grown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.each.n < samples || s.grown {
		return 0, 0, false
	}
	now = s.estimate()
	if s.first == 0 || now < s.first {
		s.first = now
	}
	s.grown = now >= muchSlower*s.first && now >= slowEnough
	return s.first, now, s.grown
}

// slowEnough is what a request takes at least on a server that has grown slow: a fresh one takes
// less than half of it.
const slowEnough = 20 * time.Microsecond

// Forget begins anew, with another server.
func (s *ServiceTime) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lone, s.each, s.first, s.grown = ring{}, ring{}, 0, false
}

// sampler times some writes. The mutex of its writeQueue guards it.
type sampler struct {
	service  *ServiceTime
	skip     int       // writes until the next sample
	begun    time.Time // when the sampled write began
	requests int       // that were in flight then; 0: no write is being timed
	due      int       // of them, those without a response
}

// wrote is called for each write. InFlight includes its requests.
func (s *sampler) wrote(inFlight int) {
	if s.requests > 0 {
		return
	}
	if s.skip--; s.skip < 0 {
		s.skip, s.requests, s.due, s.begun = sampleEvery-1, inFlight, inFlight, time.Now()
	}
}

// received is called for each read.
func (s *sampler) received(responses int) {
	if s.requests == 0 {
		return
	}
	if s.due -= responses; s.due <= 0 {
		s.service.add(s.requests, time.Since(s.begun))
		s.requests = 0
	}
}
