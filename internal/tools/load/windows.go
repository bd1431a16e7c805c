package load

import (
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/servicetime"
)

// Windows is what hits did to windows, and the requests that they took.
type Windows struct {
	Hits     uint64   `json:"hits"`   // the warm-up of each turn included
	Denied   uint64   `json:"denied"` // hits
	Opened   uint64   `json:"opened"`
	Requests Requests `json:"requests"` // of these hits, up to the time when the servers were quiet again
}

// Requests counts requests by kind, as servers count them.
type Requests struct {
	Insert uint64 `json:"insert"`
	Set    uint64 `json:"set"`
	Query  uint64 `json:"query"`
	Update uint64 `json:"update"`
	Purge  uint64 `json:"purge"`
	Other  uint64 `json:"other"`
}

// RequestsOf returns the requests that a server has counted, INFO aside.
func RequestsOf(info codec.InfoRequests) Requests {
	r := Requests{
		Insert: info.Insert.Total, Set: info.Set.Total, Query: info.Query.Total,
		Update: info.Update.Total, Purge: info.Purge.Total,
	}
	r.Other = info.All.Total - info.Info.Total - r.Insert - r.Set - r.Query - r.Update - r.Purge
	return r
}

// All returns the number of requests.
func (r Requests) All() uint64 { return r.Insert + r.Set + r.Query + r.Update + r.Purge + r.Other }

// Creations returns the number of requests that make records.
func (r Requests) Creations() uint64 { return r.Insert + r.Set }

// Plus returns the sum of r and o.
func (r Requests) Plus(o Requests) Requests {
	return Requests{r.Insert + o.Insert, r.Set + o.Set, r.Query + o.Query, r.Update + o.Update, r.Purge + o.Purge, r.Other + o.Other}
}

// Minus returns the difference of r and o.
func (r Requests) Minus(o Requests) Requests {
	return Requests{r.Insert - o.Insert, r.Set - o.Set, r.Query - o.Query, r.Update - o.Update, r.Purge - o.Purge, r.Other - o.Other}
}

// ServerTime returns how long a real server that has made many records takes for the requests over TCP,
// many at a time (H7).
func (r Requests) ServerTime() time.Duration {
	creation := servicetime.Creation(servicetime.OldAge)
	return time.Duration(r.All())*servicetime.TCP.Request + time.Duration(r.Creations())*creation
}

// plus returns the sum of w and o, each of which may be nil.
func (w *Windows) plus(o *Windows) *Windows {
	if w == nil {
		return o
	}
	if o == nil {
		return w
	}
	return &Windows{w.Hits + o.Hits, w.Denied + o.Denied, w.Opened + o.Opened, w.Requests.Plus(o.Requests)}
}

// Opening returns the number of requests that opened windows, and removed them: all, aside from
// the UPDATE and the QUERY of each hit that was allowed in a window that was open.
func (w *Windows) Opening() uint64 {
	further := w.Hits - min(w.Hits, w.Opened+w.Denied)
	return w.Requests.All() - min(w.Requests.All(), 2*further)
}

// PerWindow returns a number per opened window; 0 if none was opened.
func (w *Windows) PerWindow(n float64) float64 {
	if w.Opened == 0 {
		return 0
	}
	return n / float64(w.Opened)
}

// OpenedPerSecond returns how many windows were opened per second, given the hits per second.
func (w *Windows) OpenedPerSecond(hits float64) float64 {
	if w.Hits == 0 {
		return 0
	}
	return hits * float64(w.Opened) / float64(w.Hits)
}
