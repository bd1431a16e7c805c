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
// received anything since the first of them. It counts as locked up until it responds.
type silence struct {
	begin    time.Time // of the first of the silent attempts
	since    time.Time // when that ended; zero if there is none
	received uint64    // what all connections had received by then
	lockedUp bool      // the server has locked up, and nothing has been received since
}

// check is called after each attempt to connect, unless its caller has canceled it. Err is the
// outcome of the attempt, start is when it began, and received is how many frames all connections
// have received up to now. Changed reports whether lockedUp has changed.
func (s *silence) check(err error, start time.Time, received uint64) (changed bool) {
	before := s.lockedUp
	s.lockedUp = s.lockedUp && err != nil && received == s.received
	switch {
	case !errors.Is(err, dial.ErrSilent):
		s.since = time.Time{}
	case s.since.IsZero() || received != s.received:
		s.begin = start
		s.since = time.Now()
		s.received = received
	case !start.Before(s.since) && time.Since(s.begin) >= minSilence:
		s.lockedUp = true
	}
	return s.lockedUp != before
}

// checkSilence is check with what the connections of the pool have received. It logs what has changed. If the server has
// locked up and is silent, the returned error also matches ErrLockedUp.
func (p *Pool) checkSilence(err error, start time.Time) error {
	p.mu.Lock()
	changed := p.silence.check(err, start, p.counters.Answered.Load()+p.counters.Events.Load())
	lockedUp := p.silence.lockedUp
	p.mu.Unlock()
	switch {
	case changed && lockedUp:
		p.log.Error(ErrLockedUp.Error())
	case changed:
		p.log.Info("throttr: server responds again")
	}
	if lockedUp && errors.Is(err, dial.ErrSilent) {
		err = fmt.Errorf("%w: %w", ErrLockedUp, err)
	}
	return err
}
