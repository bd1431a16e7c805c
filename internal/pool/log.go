package pool

import "time"

// logParked logs that the server was found to be parked, or not to be parked any more, or why it
// can't be parked.
func (p *Pool[T]) logParked(parked bool, err error) {
	switch {
	case err != nil:
		p.log.Warn(err.Error())
	case parked:
		p.log.Info("throttr: server is parked: no record expires there")
	default:
		p.log.Warn("throttr: server is not parked any more: records expire there")
	}
}

// logSlow logs that the server takes longer for a request than it did.
func (p *Pool[T]) logSlow(first, now time.Duration) {
	p.log.Warn("throttr: server takes much longer for a request than before: it is busy, "+
		"or looks through responses that clients have left unread (H16)", "first", first, "now", now)
}

// logLockedUp logs that the server has locked up, or that this is over.
func (p *Pool[T]) logLockedUp(lockedUp bool) {
	if lockedUp {
		p.log.Error(ErrLockedUp.Error())
	} else {
		p.log.Info("throttr: server responds again")
	}
}
