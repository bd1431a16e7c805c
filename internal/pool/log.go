package pool

// logParked logs that the server was found to be parked, or not to be parked any more.
func (p *Pool[T]) logParked(parked bool) {
	if parked {
		p.log.Info("throttr: server is parked: no record expires there")
	} else {
		p.log.Warn("throttr: server is not parked any more: records expire there")
	}
}

// logLockedUp logs that the server has locked up, or that this is over.
func (p *Pool[T]) logLockedUp(lockedUp bool) {
	if lockedUp {
		p.log.Error(ErrLockedUp.Error())
	} else {
		p.log.Info("throttr: server responds again")
	}
}
