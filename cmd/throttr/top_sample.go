package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inspect"
	"github.com/throttr-go/throttr/internal/fixedwindow"
	"github.com/throttr-go/throttr/internal/servicetime"
)

// listShare bounds the time that a server spends on LIST: the next one comes when so many times
// as long as it took has passed, or later.
const listShare = 100

// topServer takes samples of one server.
type topServer struct {
	server string
	cfg    throttr.Config
	limits limits
	most   int           // windows that a sample reads
	pause  time.Duration // between two LISTs, at least

	client   client                // nil: not connected
	windows  map[string]*topWindow // by the names of their records
	nextList time.Time
	once     bool          // each sample has an INFO
	before   sampled       // the sample before
	listTime time.Duration // of the last LIST
}

// topWindow is what is known about the window of a record.
type topWindow struct {
	name  fixedwindow.Name
	seen  time.Time // zero: never
	open  bool
	count uint64
	ends  time.Time
	rate  float64 // hits per second
	over  float64 // of them, hits over the limit
}

// sampled is a sample of one server. Its exported fields are the JSON of a server in a view.
type sampled struct {
	Server      string   `json:"server"`
	Error       string   `json:"error,omitempty"`
	Requests    *float64 `json:"requests_per_second,omitempty"` // nil: there are no two INFOs
	Hits        *float64 `json:"hits_per_second,omitempty"`     // nil: there is no sample before
	Over        *float64 `json:"over_limit_per_second,omitempty"`
	Records     uint64   `json:"records"`
	Windows     int      `json:"open_windows"` // of those that were read
	Connections uint64   `json:"connections"`
	Bytes       uint64   `json:"bytes"`

	at, infoAt time.Time
	info       inspect.Info
	err        error
	known      int // windows, open or not
	queries    int
	hits, over float64 // per second
	keys       []topKey
}

// topKey is an open window in a sample. Its exported fields are the JSON of a key in a view.
type topKey struct {
	Server string `json:"server"`
	keyed
	Scale  seconds `json:"scale_seconds"`
	Count  uint64  `json:"count"`
	Limit  *uint64 `json:"limit,omitempty"` // nil: it is not known
	Rate   float64 `json:"hits_per_second"`
	EndsIn seconds `json:"ends_in_seconds"`
	usage  float64
}

// sample takes a sample.
func (s *topServer) sample(ctx context.Context) (r sampled) {
	r.Server = s.server
	r.err = s.read(ctx, &r)
	if r.err != nil && s.client != nil && ctx.Err() == nil {
		s.client.Close()
		s.client = nil
	}
	r.at = time.Now()
	if r.err != nil {
		r.Error = r.err.Error()
	} else {
		r.Records, r.Connections, r.Bytes = r.info.Keys, r.info.Connections, r.info.CounterBytes+r.info.BufferBytes
	}
	if b := s.before; r.err == nil && b.err == nil && !b.at.IsZero() && r.info.RunningSince.Equal(b.info.RunningSince) {
		r.Hits, r.Requests = &r.hits, b.Requests
		if elapsed := r.infoAt.Sub(b.infoAt); elapsed > 0 {
			perSecond := float64(r.info.Requests.All.Total-b.info.Requests.All.Total) / elapsed.Seconds()
			r.Requests = &perSecond
		}
		if len(s.limits) > 0 {
			r.Over = &r.over
		}
	}
	s.before = r
	return r
}

func (s *topServer) read(ctx context.Context, r *sampled) (err error) {
	if s.client == nil {
		if s.client, err = connectTo(ctx, s.cfg); err != nil {
			return err
		}
		s.windows, s.nextList = map[string]*topWindow{}, time.Time{}
	}
	start := time.Now()
	listDue := !start.Before(s.nextList)
	r.info, r.infoAt = s.before.info, s.before.infoAt
	if listDue || s.once { // an INFO, too, has the server look through all of its records (H24)
		infos, err := s.client.Info(ctx)
		if err != nil {
			return err
		}
		r.info, r.infoAt = infos[0], start
	} else if _, err := s.client.WhoAmI(ctx); err != nil { // there may be no window to ask for
		return err
	}
	if listDue {
		if err := s.list(ctx); err != nil {
			return err
		}
		s.listTime = time.Since(start)
		s.nextList = start.Add(s.listInterval())
	}
	return s.query(ctx, r)
}

// listInterval returns the time between two LISTs.
func (s *topServer) listInterval() time.Duration { return max(s.pause, listShare*s.listTime) }

// list learns the names of all records of windows.
func (s *topServer) list(ctx context.Context) error {
	listed := make(map[string]*topWindow, len(s.windows))
	err := each(s.client.List(ctx), func(e inspect.Record) {
		name, ok := fixedwindow.ParseName([]byte(e.Key))
		if !ok {
			return
		}
		w := s.windows[e.Key]
		if w == nil {
			w = &topWindow{name: name}
		}
		listed[e.Key] = w
	})
	if err == nil {
		s.windows = listed
	}
	return err
}

// query reads the windows of the sample.
func (s *topServer) query(ctx context.Context, r *sampled) error {
	r.known = len(s.windows)
	for names := range slices.Chunk(s.choose(), batchSize) {
		counters, err := s.client.queryAll(ctx, names)
		if err != nil {
			return err
		}
		r.queries += len(names)
		now := time.Now()
		for i, name := range names {
			w := s.windows[name]
			if !counters[i].found {
				delete(s.windows, name)
				continue
			}
			w.update(counters[i], s.client.largest(), now, s.limits)
			if w.open {
				r.add(s, w, now)
			}
		}
	}
	return nil
}

// add adds an open window to the sample.
func (r *sampled) add(s *topServer, w *topWindow, now time.Time) {
	r.Windows++
	r.hits += w.rate
	r.over += w.over
	k := topKey{
		Server: s.server, keyed: keyOf(keyOfWindow(w.name)), Scale: seconds(w.name.Scale), Count: w.count, Rate: w.rate, EndsIn: seconds(w.ends.Sub(now)),
		usage: s.limits.usage(w.name.Scale, w.count),
	}
	if limit, ok := s.limits[w.name.Scale]; ok {
		k.Limit = &limit
	}
	r.keys = append(r.keys, k)
}

// choose returns the names of the records to read. If there are too many, half of them are those
// that were nearest to their limits, and the others are chosen at random.
func (s *topServer) choose() []string {
	names := make([]string, 0, len(s.windows))
	for name := range s.windows {
		names = append(names, name)
	}
	if len(names) <= s.most {
		return names
	}
	slices.SortFunc(names, func(a, b string) int { return s.windows[a].compare(s.windows[b], s.limits) })
	best := s.most / 2
	rest := names[best:]
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return names[:s.most]
}

// compare compares windows: first those that are nearest to their limits, then by count.
func (w *topWindow) compare(o *topWindow, l limits) int {
	usage := func(w *topWindow) (float64, uint64) {
		if !w.open {
			return -1, 0
		}
		return l.usage(w.name.Scale, w.count), w.count
	}
	a, n := usage(w)
	b, m := usage(o)
	return cmp.Or(cmp.Compare(b, a), cmp.Compare(m, n))
}

// update learns what a record shows now.
func (w *topWindow) update(c counter, largest uint64, now time.Time, l limits) {
	open, isOpen := openWindow(w.name, c, largest, now)
	known, wasOpen, before := !w.seen.IsZero(), w.open, w.count
	elapsed := now.Sub(w.seen).Seconds()
	same := wasOpen && isOpen && open.Count >= before && now.Before(w.ends)
	w.seen, w.open, w.rate, w.over = now, isOpen, 0, 0
	if !isOpen {
		return
	}
	w.count, w.ends = open.Count, now.Add(open.Left)
	if !same {
		before = 0
	}
	if known && elapsed > 0 {
		w.rate = float64(open.Count-before) / elapsed
		w.over = float64(l.over(w.name.Scale, before, open.Count)) / elapsed
	}
}

// cost returns how much of the server's time samples at an interval take: a QUERY for each window, and
// the LIST with its INFO.
func (s *topServer) cost(r *sampled, every time.Duration) float64 {
	requests := time.Duration(r.queries) * servicetime.TCP.Request
	return float64(requests)/float64(every) + float64(s.listTime)/float64(s.listInterval())
}
