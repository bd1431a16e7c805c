package throttr

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/parking"
	"github.com/throttr-go/throttr/internal/pool"
	"github.com/throttr-go/throttr/internal/pubsub"
)

// server is one server of a client.
type server struct {
	name          string // as in Config.Servers
	pool          *pool.Pool
	subscriptions *pubsub.Manager
}

// servers are those of a client. A key lives on one of them.
type servers struct {
	all   []*server // in the order of Config.Servers
	byKey rendezvous
}

// newServers makes the pools of all servers of cfg, without a connection. The pools share
// calls.
func newServers(cfg Config, calls *conn.Calls) servers {
	s := servers{byKey: newRendezvous(cfg.Servers)}
	for _, name := range cfg.Servers {
		p := pool.New(poolOptions(name, cfg, calls))
		m := pubsub.NewManager(subscriptionOptions(name, cfg, p))
		s.all = append(s.all, &server{name: name, pool: p, subscriptions: m})
	}
	return s
}

func poolOptions(name string, cfg Config, calls *conn.Calls) pool.Options {
	address, _ := dial.ParseAddress(name) // withDefaults has seen that it is one
	return pool.Options{
		Target: dial.Target{
			Server: name, Address: address, Calls: calls,
			Dialer: &dial.Dialer{Dial: cfg.Dial, TLS: cfg.TLS, Timeout: cfg.ConnectTimeout},
		},
		MaxConns: cfg.MaxConns, MaxInFlight: cfg.MaxInFlight, MaxQueued: cfg.MaxQueued,
		MaxRetries: cfg.MaxRetries, MaxResponse: cfg.MaxResponse,
		StallTimeout: cfg.StallTimeout, MaxConnAge: cfg.MaxConnAge, MaxConnIdle: cfg.MaxConnIdle,
		HealthInterval: cfg.HealthInterval, MinBackoff: cfg.MinBackoff, MaxBackoff: cfg.MaxBackoff,
		Parking: parking.Mode(cfg.Parking), Logger: cfg.Logger,
	}
}

func subscriptionOptions(name string, cfg Config, p *pool.Pool) pubsub.Options {
	return pubsub.Options{
		Server: name, Open: p.ForEvents, MaxInFlight: cfg.MaxInFlight, MaxRetries: cfg.MaxRetries,
		HealthInterval: cfg.HealthInterval, MinBackoff: cfg.MinBackoff, MaxBackoff: cfg.MaxBackoff,
	}
}

// of returns the server that a key lives on.
func (s *servers) of(key string) *server { return s.all[s.byKey.pick(key)] }

// connect makes a first connection to each server. It returns the errors of all that can't be reached, joined.
func (s *servers) connect(ctx context.Context) error {
	errs := make([]error, len(s.all))
	inParallel(len(s.all), func(i int) {
		if err := s.all[i].pool.Connect(ctx); err != nil {
			errs[i] = &ConnectError{Server: s.all[i].name, Err: err}
		}
	})
	return errors.Join(errs...)
}

// startWait is how long a lazy start waits for the first attempts to connect. Most of them have
// ended by then, so that a program whose servers are there begins to count with its first hit.
const startWait = 500 * time.Millisecond

// start has connections made in the background. It waits for the first attempts, but not for
// longer than startWait, and not beyond the end of ctx.
func (s *servers) start(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	inParallel(len(s.all), func(i int) {
		select {
		case <-s.all[i].pool.Start():
		case <-ctx.Done():
		}
	})
}

// close ends all connections and subscriptions, and returns when nothing of them is left.
func (s *servers) close() {
	var closing sync.WaitGroup
	for _, one := range s.all {
		closing.Go(one.pool.Close)
		closing.Go(one.subscriptions.Close)
	}
	closing.Wait()
}

// each asks servers concurrently. It returns their results in order, and their errors,
// joined.
func each[R any](servers []*server, ask func(*server) ([]R, error)) ([]R, error) {
	if len(servers) == 1 {
		return ask(servers[0])
	}
	results, errs := make([][]R, len(servers)), make([]error, len(servers))
	inParallel(len(servers), func(i int) { results[i], errs[i] = ask(servers[i]) })
	return slices.Concat(results...), errors.Join(errs...)
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// rendezvous picks the server of a key by rendezvous hashing (Thaler and
// Ravishankar, "A Name-Based Mapping Scheme for Rendezvous", 1996). Every server has a score
// for every key, and a key lives on the server with the highest score. If a server is
// removed, only its own keys get another one.
//
// A score is the 64-bit FNV-1a hash of the server's text, a zero byte and the key, mixed by
// the finalizer of SplitMix64. Scores never change: programs of different versions must
// agree where a key lives.
//
// Its elements are the FNV-1a hash of each server's text and the zero byte. It is safe for concurrent use.
type rendezvous []uint64

// newRendezvous returns a rendezvous of servers. Their order matters only for the indexes that pick returns.
func newRendezvous(servers []string) rendezvous {
	r := make(rendezvous, len(servers))
	for i, s := range servers {
		r[i] = fnv1a(fnv1a(fnvOffset, s), "\x00")
	}
	return r
}

// pick returns the index of key's server. If two servers have the same score, the first
// wins; for different texts this happens once in 2⁶⁴ keys.
func (r rendezvous) pick(key string) int {
	if len(r) == 1 {
		return 0
	}
	best, highest := 0, uint64(0)
	for i, seed := range r {
		if s := score(seed, key); i == 0 || s > highest {
			best, highest = i, s
		}
	}
	return best
}

// score is that of the server with the given seed.
func score(seed uint64, key string) uint64 { return mix(fnv1a(seed, key)) }

// fnv1a continues the hash h over s.
func fnv1a(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return h
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014). The high bits of FNV-1a
// alone are too regular for scores to be compared.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
