// Package parking parks the collector of a server, so that no record expires.
//
// A server removes expired records when its one timer fires, and some constellations of
// expiries lock it up for good (H12). An UPDATE of the TTL of the record with the empty key
// sets the timer to that record's new expiry. A server is parked if it has such a record,
// whose TTL is as long as its values allow, and if its clients repeat the UPDATE after
// every request that may have set the timer: INSERT, SET of a new key, and the value-size
// probe, which is an INSERT. Records then stay until they are removed by PURGE.
//
// A parked server must stay parked. Records outlive their TTLs there, and the first run of
// the collector that finds one more than 10 s late locks the server up.
package parking

import (
	"errors"
	"sync/atomic"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// unit and mark are the unit of the TTL of the record and its quota. A record with the empty key
// and another unit or quota is somebody's data. Buffers have the quota 0. The unit tells, as nobody
// removes the record (H19).
const (
	unit = codec.Hours
	mark = 'P'
)

// maxHours is the longest TTL of the record, 100 years. What a server adds to its clock must
// fit 64-bit nanoseconds (H13).
const maxHours = 100 * 365 * 24

var (
	// errForeign says that the record with the empty key is not one that parks a server.
	errForeign = errors.New("throttr: the server can't be parked: the record with the empty key is somebody's data")
	// errNotParked says that the server did not accept the record.
	errNotParked = errors.New("throttr: the server can't be parked: it rejects the record with the empty key")
)

// hours returns the longest TTL that a server can hold.
func hours(s conn.Size) uint64 { return min(s.Largest(), maxHours) }

// Insert is the request that creates the record.
func Insert(s conn.Size) conn.Insert {
	return conn.Insert{Quota: mark, TTL: conn.TTL{Amount: hours(s), Unit: unit}}
}

// Update is the request that sets the server's timer. It succeeds if the server is parked.
func Update(s conn.Size) conn.Update {
	return conn.Update{Attribute: codec.TimeToLive, Change: codec.Patch, Value: hours(s)}
}

// Query is the request whose response Keep needs. Its frame is the same for all value sizes.
func Query() codec.Query { return codec.Query{} }

// Mode says when a server is parked.
type Mode uint8

const (
	// Automatic parks a server if Want is called.
	Automatic Mode = iota
	// Never does not park a server, but keeps one parked that others have parked.
	Never
	// Always parks every server.
	Always
)

// Tracker is what a client knows about the parking of a server, and what it intends. It is safe
// for concurrent use.
type Tracker struct {
	mode    Mode
	changed func(parked bool, err error) // see NewTracker
	// wanted says that the client parks the server whenever it is not parked.
	wanted atomic.Bool
	// kept says that the client creates records for which the server should stay parked.
	kept atomic.Bool
	// parked says that the server was parked when this was last seen.
	parked atomic.Bool
	// foreign says that the record with the empty key was somebody's data when last seen.
	foreign atomic.Bool
	// failed says that changed was called with the reason why the server can't be parked.
	failed atomic.Bool
}

// NewTracker returns the Tracker of a server that was not seen yet. It calls changed when the server is found to be
// parked, or not to be parked any more; and once, with an error that says why, if the server is to be parked and can't
// be. changed must not block.
func NewTracker(m Mode, changed func(parked bool, err error)) *Tracker {
	s := &Tracker{mode: m, changed: changed}
	s.wanted.Store(m == Always)
	return s
}

// Parked reports whether the server was parked when this was last seen.
func (s *Tracker) Parked() bool { return s.parked.Load() }

// Wanted reports whether the client parks the server if it is not parked.
func (s *Tracker) Wanted() bool { return s.wanted.Load() }

// May reports whether the client may park the server: the mode is not Never.
func (s *Tracker) May() bool { return s.mode != Never }

// Want makes the client park the server from now on. It returns false if the mode is Never.
func (s *Tracker) Want() bool {
	if s.May() {
		s.wanted.Store(true)
	}
	return s.May()
}

// Keep makes the client keep the server parked from the moment on at which anybody parks it,
// and park it again if it is restarted. If the mode is Never, it does nothing: the client then
// keeps the server parked as soon as a Query has shown that it is.
func (s *Tracker) Keep() {
	if s.mode == Never {
		return
	}
	s.kept.Store(true)
	if s.Parked() {
		s.Want()
	}
}

// Appends reports whether a call that creates records must end with an Update. A client that
// holds the server can't know whether somebody has just parked it.
func (s *Tracker) Appends() bool {
	return !s.foreign.Load() && (s.parked.Load() || s.wanted.Load() || s.kept.Load())
}

// Learn is called with the success of an Update.
func (s *Tracker) Learn(parked bool) {
	if parked {
		s.failed.Store(false)
		if s.kept.Load() {
			s.Want()
		}
	}
	if s.parked.Swap(parked) != parked {
		s.changed(parked, nil)
	}
}

// Parks reports whether the response to a Query shows a record that parks a server.
func Parks(r conn.Response) bool { return r.OK && r.TTL.Unit == unit && r.Quota == mark }

// KeepParked keeps a server parked, or parks it if that is wanted and possible. It is given the response to a Query.
// Send sends an Update, after an Insert in the same write if insert is true, and returns whether the Update has
// succeeded. KeepParked returns an error only if send does.
func (s *Tracker) KeepParked(r conn.Response, send func(insert bool) (bool, error)) error {
	if r.OK && !Parks(r) {
		s.Learn(false)
		s.foreign.Store(true)
		s.refuse(errForeign)
		return nil
	}
	s.foreign.Store(false)
	if r.OK {
		ok, err := send(false)
		if err != nil {
			return err
		}
		if ok {
			s.Learn(true)
			return nil
		}
	}
	if !s.Wanted() {
		s.Learn(false)
		return nil
	}
	// The INSERT fails if another client is quicker. The UPDATE then succeeds all the same.
	ok, err := send(true)
	if err != nil {
		return err
	}
	s.Learn(ok)
	if !ok {
		s.refuse(errNotParked)
	}
	return nil
}

// refuse tells why the server can't be parked, if that is wanted.
func (s *Tracker) refuse(err error) {
	if s.Wanted() && !s.failed.Swap(true) {
		s.changed(false, err)
	}
}
