package throttr

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr/codec"
)

// Counter is what a server knows of a counter.
type Counter[T codec.Value] struct {
	Quota T            // the number it holds
	TTL   codec.TTL[T] // what remains, floored to the unit it was made with; can be 0
}

// Buffer is a value of bytes on a server.
type Buffer[T codec.Value] struct {
	Value []byte
	TTL   codec.TTL[T] // what remains, floored to the unit it was made with; can be 0
}

// Client speaks to one or more Throttr servers whose values are T. It is safe for
// any number of goroutines, whose requests share connections. Make one with
// [Connect], and keep it.
//
// A key lives on one of the servers, see Config.Servers. A key has at most 255
// bytes; a longer one is an error that matches [codec.ErrTooLarge], and nothing is
// sent.
//
// Every method returns as soon as its ctx ends. A request that gets no answer is a
// [*RequestError], which tells whether it may have been executed nonetheless. A
// status of failure is an answer, false, and no error.
type Client[T codec.Value] struct {
	cfg    Config
	router router
	pools  []*pool[T]
	calls  *sync.Pool // of *call[T]

	hubs          []*hub[T] // of the pools
	subscriptions subscriptionTotals

	ended chan struct{} // closed when Close is done

	mu       sync.Mutex
	closed   bool
	backends []*ServerBackend[T]
}

// Connect makes a client and a first connection to each server of cfg.
//
// Errors match [ErrConfig] or [ErrConnect]; that of a server whose values are not
// of type T is a [*ValueSizeError] too.
func Connect[T codec.Value](ctx context.Context, cfg Config) (*Client[T], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client[T]{
		cfg:    cfg,
		router: newRouter(cfg.Servers),
		calls:  &sync.Pool{New: func() any { return newCall[T]() }},
		ended:  make(chan struct{}),
	}
	for _, s := range cfg.Servers {
		p, err := newPool[T](s, &c.cfg, c.calls)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.pools = append(c.pools, p)
		c.hubs = append(c.hubs, newHub(p))
	}
	errs := make([]error, len(c.pools))
	var dials sync.WaitGroup
	for i, p := range c.pools {
		dials.Go(func() { _, errs[i] = p.get(ctx) })
	}
	dials.Wait()
	for i, err := range errs {
		if err != nil {
			c.Close()
			if !errors.Is(err, ErrConnect) {
				err = fmt.Errorf("%w to %s: %w", ErrConnect, c.cfg.Servers[i], err)
			}
			return nil, err
		}
	}
	return c, nil
}

// Close ends the client's backends, subscriptions and connections, and returns when nothing of
// them is left. Requests that are under way fail with [ErrClosed]. It always returns nil.
func (c *Client[T]) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.end()
		close(c.ended)
	}
	<-c.ended
	return nil
}

// end ends the backends, then the connections that they need.
func (c *Client[T]) end() {
	var ends sync.WaitGroup
	for _, b := range c.backends { // adopt adds none any more
		ends.Go(b.close)
	}
	ends.Wait()
	for _, p := range c.pools {
		ends.Go(p.close)
	}
	for _, h := range c.hubs {
		ends.Go(h.close)
	}
	ends.Wait()
}

// adopt has Close end b. It returns false if the client is closed already.
func (c *Client[T]) adopt(b *ServerBackend[T]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.backends = append(c.backends, b)
	}
	return !c.closed
}

// Stats returns what the client has done and is doing.
func (c *Client[T]) Stats() Stats {
	s := Stats{Subscriptions: int(c.subscriptions.open.Load()), Dropped: c.subscriptions.dropped.Load()}
	for i, p := range c.pools {
		one := p.stats()
		if c.hubs[i].connected() {
			one.Conns++
		}
		s.Servers = append(s.Servers, one)
	}
	return s
}

// Insert creates a counter that starts with quota. It returns false where the key
// exists, be it that it has expired in the last 10 s (H1 in docs/protocol.md).
// [ErrTTL] is returned for a TTL that is zero or over 292 years.
func (c *Client[T]) Insert(ctx context.Context, key string, quota T, ttl codec.TTL[T]) (bool, error) {
	if err := checkTTL(ttl); err != nil {
		return false, err
	}
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpInsert, add(cl, codec.Insert[T]{Key: cl.scratch, Quota: quota, TTL: ttl}))
	return a.ok, err
}

// Query reads a counter. It returns false where there is none. A record whose TTL
// has run out can still be found, with a TTL of 0 (H2 in docs/protocol.md).
func (c *Client[T]) Query(ctx context.Context, key string) (Counter[T], bool, error) {
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpQuery, add(cl, codec.Query{Key: cl.scratch}))
	return Counter[T]{Quota: a.quota, TTL: a.ttl}, a.ok, err
}

// Update changes a counter's quota, or a record's TTL in the unit that the record
// was made with. It returns false where there is no such key, or where a DECREASE
// would bring the quota below zero.
//
// INCREASE of a quota wraps around to zero beyond the largest T, without a sign of
// it (H3 in docs/protocol.md). A TTL is moved only within 292 years from now, and only as
// far as T can tell what remains: where this does not follow from value alone, its record
// is asked for first, and the error matches [ErrTTL]. That of an attribute or change which
// the protocol does not have matches [ErrUpdate].
func (c *Client[T]) Update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change, value T) (bool, error) {
	if err := checkChange(attribute, change); err != nil {
		return false, err
	}
	if attribute == codec.TimeToLive {
		if ok, err := c.checkMove(ctx, key, change, value); !ok || err != nil {
			return false, err
		}
	}
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpUpdate,
		add(cl, codec.Update[T]{Attribute: attribute, Change: change, Value: value, Key: cl.scratch}))
	return a.ok, err
}

// checkMove reports whether the TTL of key can be moved so. It returns false where
// there is no such key.
func (c *Client[T]) checkMove(ctx context.Context, key string, change codec.Change, value T) (bool, error) {
	if change == codec.Patch && uint64(value) <= maxTTLHours {
		return true, checkTTL(codec.TTL[T]{Amount: value, Unit: codec.Hours})
	}
	now, ok, err := c.Query(ctx, key)
	if !ok || err != nil {
		return false, err
	}
	moved, left := codec.TTL[T]{Amount: value, Unit: now.TTL.Unit}.Duration(), now.TTL.Duration()
	switch {
	case moved == maxTTL, change == codec.Increase && moved > maxTTL-left-now.TTL.Unit.Duration():
		return false, fmt.Errorf("%w: %v by %d%v of a record that has %v left leads beyond 292 years",
			ErrTTL, change, value, now.TTL.Unit, now.TTL)
	case change == codec.Increase && value >= ^T(0)-now.TTL.Amount:
		return false, fmt.Errorf("%w: %v by %d%v of a record that has %v left leads beyond what a QUERY can tell",
			ErrTTL, change, value, now.TTL.Unit, now.TTL)
	case change == codec.Decrease && moved > left:
		return false, fmt.Errorf("%w: %v by %d%v of a record that has %v left ends it: purge it instead",
			ErrTTL, change, value, now.TTL.Unit, now.TTL)
	}
	return true, nil
}

// Purge deletes a counter or buffer. It returns false where there is none.
func (c *Client[T]) Purge(ctx context.Context, key string) (bool, error) {
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpPurge, add(cl, codec.Purge{Key: cl.scratch}))
	return a.ok, err
}

// Set stores a buffer, over one that is there. It returns false where the key is a
// counter, or has expired in the last 10 s (H1 in docs/protocol.md). The length of value is
// at most the largest T, and the frame 8096 bytes; an error matches
// [codec.ErrTooLarge]. [ErrTTL] is returned for a TTL that is zero or over 292 years.
func (c *Client[T]) Set(ctx context.Context, key string, value []byte, ttl codec.TTL[T]) (bool, error) {
	if err := checkTTL(ttl); err != nil {
		return false, err
	}
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpSet, add(cl, codec.Set[T]{TTL: ttl, Key: cl.scratch, Value: value}))
	return a.ok, err
}

// Get reads a buffer. It returns false where there is none. A counter is found with
// an empty value.
func (c *Client[T]) Get(ctx context.Context, key string) (Buffer[T], bool, error) {
	cl := c.newCall(key)
	a, err := c.do(ctx, key, cl, codec.OpGet, add(cl, codec.Get{Key: cl.scratch}))
	return Buffer[T]{Value: a.value, TTL: a.ttl}, a.ok, err
}

// newCall returns an empty call that holds key in scratch.
func (c *Client[T]) newCall(key string) *call[T] {
	cl := c.calls.Get().(*call[T])
	cl.reset()
	cl.scratch = append(cl.scratch[:0], key...)
	return cl
}

// do sends a call of one request and returns its answer, unless encoding it has
// failed.
func (c *Client[T]) do(ctx context.Context, key string, cl *call[T], op codec.Op, encoding error) (a answer[T], err error) {
	return c.ask(ctx, c.pools[c.router.pick(key)], cl, op, encoding)
}

// ask is do for a server that no key tells.
func (c *Client[T]) ask(ctx context.Context, p *pool[T], cl *call[T], op codec.Op, encoding error) (a answer[T], err error) {
	if encoding != nil {
		c.calls.Put(cl)
		return a, encoding
	}
	cl.op = op
	mine, err := p.exchange(ctx, cl)
	if !mine {
		return a, err
	}
	if err == nil {
		a = cl.answers[0]
	}
	c.calls.Put(cl)
	return a, err
}

// exchange sends a call to the server of a key and waits for its answers. If it
// returns false, the call must not be touched any more.
func (c *Client[T]) exchange(ctx context.Context, key string, cl *call[T]) (mine bool, err error) {
	return c.pools[c.router.pick(key)].exchange(ctx, cl)
}

const (
	// maxTTL is the longest TTL that the client sends, some 292 years: what a server
	// adds to its clock must fit 64-bit nanoseconds (H13).
	maxTTL = time.Duration(1<<63 - 1)
	// maxTTLHours is maxTTL in hours: an amount up to it is safe in any unit.
	maxTTLHours = uint64(maxTTL / time.Hour)
)

// checkTTL refuses what makes a server lose a record or lock up (H13).
func checkTTL[T codec.Value](ttl codec.TTL[T]) error {
	switch {
	case !ttl.Unit.Known():
		return fmt.Errorf("%w: unit 0x%02x is unknown", ErrTTL, byte(ttl.Unit))
	case ttl.Amount == 0:
		return fmt.Errorf("%w: 0 is dead at once", ErrTTL)
	case uint64(ttl.Amount) > uint64(maxTTL/ttl.Unit.Duration()):
		return fmt.Errorf("%w: %v is over 292 years", ErrTTL, ttl)
	}
	return nil
}

// checkChange refuses what a server does not know: it would answer as if it had done
// something.
func checkChange(attribute codec.Attribute, change codec.Change) error {
	if attribute > codec.TimeToLive || change > codec.Decrease {
		return fmt.Errorf("%w: UPDATE of %v by %v", ErrUpdate, attribute, change)
	}
	return nil
}
