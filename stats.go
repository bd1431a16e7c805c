package throttr

// Stats is what a client has done since it was made, and what it is doing.
type Stats struct {
	Servers []ServerStats // in the order of Config.Servers

	Subscriptions int    // subscriptions that are open
	Dropped       uint64 // messages that were dropped because the queue of their subscription was full
}

// ServerStats is the part of [Stats] that concerns one server.
type ServerStats struct {
	Server    string // as in Config.Servers
	Conns     int    // connections that are open, with the one for subscriptions, without those of backends alone
	InFlight  int    // requests that were sent and have no response yet
	Waiting   int    // requests that wait to be sent, on all connections
	Acquiring int    // callers that wait for a connection, or for a LIST or STATS to end

	Parked   bool // the server was parked when this was last seen, see Parking
	LockedUp bool // the server has locked up and not responded since, see ErrLockedUp

	// Err is why there is no connection: the last attempt to connect has failed. It matches
	// ErrValueSizeMismatch if the server's value size is not the client's. It is nil if there
	// is a connection, and before a request needs one.
	Err error

	Answered uint64 // responses received
	Events   uint64 // EVENT frames received
	Dials    uint64 // attempts to connect
	Failures uint64 // attempts that failed, and connections that were lost
	Retries  uint64 // requests that were sent again
}

// Stats returns what the client has done and is doing.
func (c *client) Stats() Stats {
	s := Stats{Subscriptions: int(c.subscriptions.Open.Load()), Dropped: c.subscriptions.Dropped.Load()}
	for _, server := range c.servers.all {
		one := ServerStats(server.pool.Stats())
		if server.subscriptions.Connected() {
			one.Conns++
		}
		s.Servers = append(s.Servers, one)
	}
	return s
}
