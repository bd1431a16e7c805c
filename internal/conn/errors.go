package conn

import (
	"errors"

	"github.com/throttr-go/throttr/internal/outage"
)

var (
	// ErrProtocol says that a server sent bytes that can't be a response.
	ErrProtocol error = outage.Error("throttr: protocol violation by the server")
	// ErrStalled says that requests were outstanding and no byte came for
	// Options.StallTimeout.
	ErrStalled error = outage.Error("throttr: server has stalled")
	// ErrLost says that the network ended a connection.
	ErrLost error = outage.Error("throttr: connection lost")
	// ErrGone says that a connection accepts no more calls.
	ErrGone = errors.New("throttr: connection is closing")
	// ErrStale says that a call was not sent because Call.Stale returned true.
	ErrStale = errors.New("throttr: the request waited to be sent for too long")
)
