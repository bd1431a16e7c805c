package throttr

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/pubsub"
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
// concurrent use by any number of goroutines, whose requests share connections. Make one
// with [Connect] and keep it.
//
// A key lives on one of the servers, see Config.Servers. A key has at most 255 bytes; a
// longer one is an error that matches [codec.ErrTooLarge], and nothing is sent.
//
// Every method returns as soon as its ctx ends. A request that gets no response is a
// [*RequestError], which says whether the request may have been executed. A status of
// failure is a response: false, and no error.
type Client[T codec.Value] struct {
	_ [0]T // no Client converts to one of another size
	*client
}

// client is a [Client] of any value size. Its exported methods are those of Client.
type client struct {
	cfg           Config
	servers       servers
	calls         *conn.Calls
	subscriptions pubsub.Totals

	ended chan struct{} // closed when Close is done

	mu       sync.Mutex // guards what follows
	closed   bool
	backends map[*ServerBackend]struct{}
}

// Connect makes a client and a first connection to each server of cfg. It panics if ctx is
// nil. With Config.Lazy it does not need the servers, and does not fail if ctx ends.
//
// Errors match [ErrConfig] or [ErrConnect]. The error of a server whose values are not of
// type T is also a [*ValueSizeError]. Those of several servers are joined.
func Connect[T codec.Value](ctx context.Context, cfg Config) (*Client[T], error) {
	if ctx == nil {
		panic("throttr: Connect: ctx is nil")
	}
	c, err := connect(ctx, cfg, conn.SizeOf(codec.Size[T]()))
	if err != nil {
		return nil, err
	}
	return &Client[T]{client: c}, nil
}

// connect is [Connect] for a value size. If it is nil, the first server tells it.
func connect(ctx context.Context, cfg Config, size conn.Size) (*client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &client{
		cfg: cfg, calls: conn.NewCalls(size), ended: make(chan struct{}), backends: make(map[*ServerBackend]struct{}),
	}
	c.servers = newServers(cfg, c.calls)
	if cfg.Lazy {
		c.servers.start(ctx)
		return c, nil
	}
	if err := c.servers.connect(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the client's backends, subscriptions and connections, and returns when nothing of
// them is left. Requests that wait to be sent fail with [ErrClosed], and so do those whose
// response does not come within a quarter of a second: a server never gets the memory of unread
// responses back (H16 in docs/internals/protocol.md). It always returns nil.
func (c *client) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	backends := slices.Collect(maps.Keys(c.backends))
	c.mu.Unlock()
	if first {
		inParallel(len(backends), func(i int) { backends[i].end() }) // they need the connections until they have ended
		c.servers.close()
		close(c.ended)
	}
	<-c.ended
	return nil
}

// register has Close end b. It returns false if the client is closed already.
func (c *client) register(b *ServerBackend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.backends[b] = struct{}{}
	}
	return !c.closed
}

// deregister undoes register.
func (c *client) deregister(b *ServerBackend) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.backends, b)
}

// ping sends each server a QUERY.
func (c *client) ping(ctx context.Context) error {
	_, err := each(c.servers.all, func(s *server) ([]struct{}, error) {
		call := c.newCall(conn.PingKey)
		_, err := askServer(ctx, c, s, "", call, codec.Query{Key: call.Key})
		return nil, err
	})
	return err
}

// Insert creates a counter that starts with quota. It returns false if the key exists. A key
// that has expired in the last 10 s still exists (H1 in docs/internals/protocol.md). On a server that is
// parked, counters do not expire, see [Parking]. The error matches [ErrTTL] if the TTL is zero
// or over 292 years.
func (c *Client[T]) Insert(ctx context.Context, key string, quota T, ttl codec.TTL[T]) (bool, error) {
	if err := checkTTL(ttl); err != nil {
		return false, err
	}
	call := c.newCall(key)
	r, err := ask(ctx, c.client, key, call, codec.Insert[T]{Key: call.Key, Quota: quota, TTL: ttl})
	return r.OK, err
}

// Query reads a counter. It returns false if there is none. A record whose TTL has run out
// can still be found, with a TTL of 0 (H2 in docs/internals/protocol.md). The unit of the TTL is meaningless
// if the record is removed at the same time (H19): do not rely on it if you know the unit.
func (c *Client[T]) Query(ctx context.Context, key string) (Counter[T], bool, error) {
	call := c.newCall(key)
	r, err := ask(ctx, c.client, key, call, codec.Query{Key: call.Key})
	return counterOf[T](r), r.OK, err
}

// Update changes a counter's quota, or a record's TTL in the unit that the record was made
// with. It returns false if there is no such key, or if a DECREASE would bring the quota below
// zero.
//
// INCREASE of a quota beyond the largest T wraps around to zero, and the server reports
// success (H3 in docs/internals/protocol.md).
//
// A TTL must end within 292 years from now, and what remains of it must fit T; otherwise the
// error matches [ErrTTL]. If this does not follow from value alone, Update reads the record
// first. An attribute or change that the protocol does not have is an error that matches
// [ErrUpdate].
func (c *Client[T]) Update(ctx context.Context, key string, attribute codec.Attribute, change codec.Change,
	value T) (bool, error) {
	if err := checkChange(attribute, change); err != nil {
		return false, err
	}
	if attribute == codec.TimeToLive {
		if ok, err := c.checkTTLChange(ctx, key, change, value); !ok || err != nil {
			return false, err
		}
	}
	call := c.newCall(key)
	request := codec.Update[T]{Attribute: attribute, Change: change, Value: value, Key: call.Key}
	r, err := ask(ctx, c.client, key, call, request)
	return r.OK, err
}

// Purge deletes a counter or buffer. It returns false if there is none.
func (c *client) Purge(ctx context.Context, key string) (bool, error) {
	call := c.newCall(key)
	r, err := ask(ctx, c, key, call, codec.Purge{Key: call.Key})
	return r.OK, err
}

// Set stores a buffer and replaces an existing one. It returns false if the key is a counter,
// or has expired in the last 10 s (H1 in docs/internals/protocol.md). The length of value is at most the
// largest T, and the frame has at most 8096 bytes; otherwise the error matches
// [codec.ErrTooLarge]. The error matches [ErrTTL] if the TTL is zero or over 292 years.
func (c *Client[T]) Set(ctx context.Context, key string, value []byte, ttl codec.TTL[T]) (bool, error) {
	if err := checkTTL(ttl); err != nil {
		return false, err
	}
	call := c.newCall(key)
	r, err := ask(ctx, c.client, key, call, codec.Set[T]{TTL: ttl, Key: call.Key, Value: value})
	return r.OK, err
}

// Get reads a buffer. It returns false if there is none. A counter is found, with an empty
// value.
func (c *Client[T]) Get(ctx context.Context, key string) (Buffer[T], bool, error) {
	call := c.newCall(key)
	r, err := ask(ctx, c.client, key, call, codec.Get{Key: call.Key})
	return bufferOf[T](r), r.OK, err
}

// counterOf returns the counter of a response to a QUERY.
func counterOf[T codec.Value](r conn.Response) Counter[T] {
	return Counter[T]{Quota: T(r.Quota), TTL: ttlOf[T](r)}
}

// bufferOf returns the buffer of a response to a GET.
func bufferOf[T codec.Value](r conn.Response) Buffer[T] {
	return Buffer[T]{Value: r.Value, TTL: ttlOf[T](r)}
}

func ttlOf[T codec.Value](r conn.Response) codec.TTL[T] {
	return codec.TTL[T]{Amount: T(r.TTL.Amount), Unit: r.TTL.Unit}
}

// newCall returns an empty call whose Key is key.
func (c *client) newCall(key string) *conn.Call {
	call := c.calls.Get()
	call.SetKey(key)
	return call
}

// ask sends a request, in an empty call, to the server of a key and returns the response. If the request
// can't be encoded, nothing is sent.
func ask[R codec.Request](
	ctx context.Context, c *client, key string, call *conn.Call, r R,
) (conn.Response, error) {
	return askServer(ctx, c, c.servers.of(key), key, call, r)
}

// askServer is ask for a given server. The key is that of errors.
func askServer[R codec.Request](
	ctx context.Context, c *client, s *server, key string, call *conn.Call, r R,
) (response conn.Response, err error) {
	if err := conn.Add(call, r); err != nil {
		c.calls.Put(call)
		return response, err
	}
	done, sent, err := s.pool.Do(ctx, call)
	if err == nil {
		response = call.Responses[0]
	}
	if done {
		c.calls.Put(call)
	}
	if err != nil {
		return response, &RequestError{Key: key, Server: s.name, Op: r.Op(), Sent: sent, Err: err}
	}
	return response, nil
}
