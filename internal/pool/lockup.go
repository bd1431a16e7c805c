package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/outage"
)

// ErrLockedUp says that a server accepts connections and sends nothing, neither on a new
// connection nor on one that exists. Such a server has locked up (H12).
var ErrLockedUp error = outage.Error("throttr: server accepts connections but answers nothing: locked up (H12); only a restart helps")

// minSilence is how long a server has sent nothing before it counts as locked up. A server that is
// busy with a LIST of many records is silent for seconds.
const minSilence = 10 * time.Second

// silence, which Pool.mu guards, notices that a server has locked up: attempts to connect, one after the other, were
// accepted and got no byte until they timed out, for minSilence at least, and no connection has
// received anything since the first of them.
type silence struct {
	begin    time.Time // of the first of the silent attempts
	since    time.Time // when that ended; zero if there is none
	received uint64    // what all connections had received by then
	lockedUp bool
	told     bool // it has locked up, and nothing has been received since
}

// check is called after each attempt to connect, unless its caller has canceled it. Err is the
// outcome of the attempt, start is when it began, and received is how many frames all connections
// have received up to now. If the server has locked up, the returned error also matches
// ErrLockedUp. Changed reports whether the server has just locked up, or responds again.
func (s *silence) check(err error, start time.Time, received uint64) (_ error, changed bool) {
	before := s.told
	s.told = s.told && err != nil && received == s.received
	switch {
	case !errors.Is(err, dial.ErrSilent):
		s.since, s.lockedUp = time.Time{}, false
	case s.since.IsZero() || received != s.received:
		s.begin = start
		s.since = time.Now()
		s.received = received
		s.lockedUp = false
	case !start.Before(s.since) && time.Since(s.begin) >= minSilence:
		s.lockedUp, s.told = true, true
	}
	if s.lockedUp {
		err = fmt.Errorf("%w: %w", ErrLockedUp, err)
	}
	return err, s.told != before
}

// checkSilence is check with what the connections of the pool have received. It logs what has changed.
func (p *Pool) checkSilence(err error, start time.Time) error {
	p.mu.Lock()
	err, changed := p.silence.check(err, start, p.counters.Answered.Load()+p.counters.Events.Load())
	p.mu.Unlock()
	switch {
	case !changed:
	case errors.Is(err, ErrLockedUp):
		p.log.Error(ErrLockedUp.Error())
	default:
		p.log.Info("throttr: server responds again")
	}
	return err
}
