package sweep

import (
	"context"
	"time"

	"github.com/throttr-go/throttr/codec"
)

const (
	// maxHurried bounds the records of a server that is listed at the start of a process. A LIST of
	// so many takes the server 0.1 s. A program that makes one hit and ends must not list a large
	// server, as another one may start each second.
	maxHurried = 10_000
	// abandonedAge is how old an unfinished term is at least if its leader has probably died, on
	// a server of so many records.
	abandonedAge = 2 * time.Second
	// maxDecide bounds how long the first windows wait for a decision.
	maxDecide = time.Second
)

// evidence is what a sweep has seen that tells whether all records of the server are ours: those
// of windows, the leader's, and the one that parks the server.
//
// A LIST can hide records, because the names of some can be wrong (H14). So it must name as many
// different records of ours, all of which a QUERY finds, as there are records according to an INFO
// that the server has executed together with the LIST.
type evidence struct {
	wanted  bool   // the sweep decides whether to park the server
	records uint64 // according to the INFO
	ours    uint64 // records of ours that QUERYs have found, each under another name
}

// AwaitDecision waits until the sweeper has decided whether to park the server, and reports whether it had
// to. If no record is created before, none can expire. It waits for nothing if there was a connection longer than
// maxDecide ago, or none yet.
func (s *Sweeper) AwaitDecision(ctx context.Context) (waited bool, err error) {
	select {
	case <-s.o.Server.Connected():
	default:
		return false, nil
	}
	select {
	case <-s.decided:
		return false, nil
	default:
	}
	select {
	case <-s.decided:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// first parks the server if it holds nothing but our records, unless another process has decided
// that already. It reports whether this sweeper was the leader, and how long to wait then.
//
// Without it, processes that die soon after their first hit, one after the other, would leave
// records that expire (H12).
func (s *Sweeper) first(ctx context.Context) (wait time.Duration, led bool) {
	if s.o.Server.Parked() || !s.o.Server.MayPark() {
		return 0, false
	}
	t, err := s.readTerm(ctx)
	abandoned := t.unfinished() && t.age >= abandonedAge
	if err != nil || t.foreign || s.o.Server.Parked() || t.exists && !abandoned {
		return 0, false // a complete sweep has not parked the server: there are records of others
	}
	if n, err := s.countRecords(ctx); err != nil || n > maxHurried {
		return 0, false
	}
	return s.lead(ctx, t, 0), true
}

// countRecords returns the number of records. The request has a connection of its own, because
// servers of old protocols never respond to it.
func (s *Sweeper) countRecords(ctx context.Context) (records uint64, err error) {
	var info codec.InfoResponse
	decode := func(src []byte) (n int, done bool, err error) {
		info, n, err = codec.DecodeInfoResponse(src)
		return n, err == nil, err
	}
	_, err = s.o.Server.Scan(ctx, codec.Info{}, decode, func() (more bool) {
		records = info.Keys
		return true
	})
	return records, err
}

// infoAndList is an INFO and a LIST in one write. The server executes what one read returns without
// other requests in between.
type infoAndList struct{ codec.List }

// AppendBinary implements [codec.Request].
func (l infoAndList) AppendBinary(dst []byte) ([]byte, error) {
	dst, err := codec.Info{}.AppendBinary(dst)
	if err != nil {
		return dst, err
	}
	return l.List.AppendBinary(dst)
}
