package conn

import "errors"

var (
	// ErrProtocol says that a server sent bytes that can't be a response.
	ErrProtocol = errors.New("throttr: protocol violation by the server")
	// ErrStalled says that requests were outstanding and no byte came for
	// Options.StallTimeout.
	ErrStalled = errors.New("throttr: server has stalled")
	// ErrLost says that the network ended a connection.
	ErrLost = errors.New("throttr: connection lost")
	// ErrGone says that a connection accepts no more calls.
	ErrGone = errors.New("throttr: connection is closing")
	// ErrStale says that a call was not sent because Call.Stale returned true.
	ErrStale = errors.New("throttr: the request waited to be sent for too long")
)
