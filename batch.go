package throttr

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// Batch gathers requests that are sent in one write and need one round trip. Each of its
// methods adds a request and returns where the response will be. [Client.Do] then sends them
// all. The zero value is an empty batch. A batch is for one goroutine at a time.
//
// The requests to one server are executed in the order in which they were added. Other
// clients' requests may be executed in between. More than Config.MaxInFlight requests to one
// server need several round trips. After one that fails, the rest is not sent.
type Batch[T codec.Value] struct {
	_ [0]T // see Client
	batch
}

// batch is a [Batch] of any value size. Its exported methods are those of Batch.
type batch struct {
	requests []batchRequest
	frames   []byte // of the requests
	err      error  // of the first request that can't be encoded
	phase    batchPhase
}

type batchPhase uint8

const (
	batchOpen batchPhase = iota
	batchUnderWay
	batchDone
)

type batchRequest struct {
	key      string
	kind     codec.Kind
	frame    []byte
	response conn.Response
	err      error
}

// Reply is where the response to a batched INSERT, UPDATE, PURGE or SET will be.
type Reply[T codec.Value] struct {
	_     [0]T // see Client
	batch *batch
	index int
}

// CounterReply is where the response to a batched QUERY will be.
type CounterReply[T codec.Value] struct{ reply Reply[T] }

// BufferReply is where the response to a batched GET will be.
type BufferReply[T codec.Value] struct{ reply Reply[T] }

// OK returns what the Client's method returns. Before Do has returned, the error matches
// [ErrBatch].
func (r Reply[T]) OK() (bool, error) {
	response, err := r.response()
	return response.OK, err
}

// Counter returns what [Client.Query] returns. Before Do has returned, the
// error matches [ErrBatch].
func (r CounterReply[T]) Counter() (Counter[T], bool, error) {
	response, err := r.reply.response()
	return counterOf[T](response), response.OK, err
}

// Buffer returns what [Client.Get] returns. Before Do has returned, the error
// matches [ErrBatch].
func (r BufferReply[T]) Buffer() (Buffer[T], bool, error) {
	response, err := r.reply.response()
	return bufferOf[T](response), response.OK, err
}

func (r Reply[T]) response() (conn.Response, error) { return r.batch.response(r.index) }

// response returns the response to the i-th request of b, which may be nil.
func (b *batch) response(i int) (conn.Response, error) {
	if b == nil || b.phase != batchDone || i >= len(b.requests) {
		return conn.Response{}, fmt.Errorf("%w: no response yet: the batch has not been sent", ErrBatch)
	}
	return b.requests[i].response, b.requests[i].err
}

// Len returns the number of requests in the batch.
func (b *batch) Len() int { return len(b.requests) }

// Reset empties the batch for other requests. Replies of earlier ones are void.
func (b *batch) Reset() {
	clear(b.requests)
	*b = batch{requests: b.requests[:0], frames: b.frames[:0]}
}

// Insert adds what [Client.Insert] does.
func (b *Batch[T]) Insert(key string, quota T, ttl codec.TTL[T]) Reply[T] {
	return b.add(key, codec.Insert[T]{Key: []byte(key), Quota: quota, TTL: ttl}, checkTTL(ttl))
}

// Query adds what [Client.Query] does.
func (b *Batch[T]) Query(key string) CounterReply[T] {
	return CounterReply[T]{b.add(key, codec.Query{Key: []byte(key)}, nil)}
}

// Update adds what [Client.Update] does. Of a TTL it can only be a PATCH by up to
// 2,562,047, which is 292 years in hours. Any other change is safe only if the record is
// read first, which Client.Update does.
func (b *Batch[T]) Update(key string, attribute codec.Attribute, change codec.Change, value T) Reply[T] {
	err := checkChange(attribute, change)
	if attribute == codec.TimeToLive && err == nil {
		switch {
		case change != codec.Patch:
			err = fmt.Errorf("%w: a batch can't %s a TTL, Client.Update can", ErrTTL, change)
		case value == 0 || uint64(value) > maxTTLHours:
			err = fmt.Errorf("%w: PATCH by %d, a batch can do 1 to %d", ErrTTL, value, maxTTLHours)
		}
	}
	return b.add(key, codec.Update[T]{Attribute: attribute, Change: change, Value: value, Key: []byte(key)}, err)
}

// Purge adds what [Client.Purge] does.
func (b *Batch[T]) Purge(key string) Reply[T] {
	return b.add(key, codec.Purge{Key: []byte(key)}, nil)
}

// Set adds what [Client.Set] does.
func (b *Batch[T]) Set(key string, value []byte, ttl codec.TTL[T]) Reply[T] {
	return b.add(key, codec.Set[T]{TTL: ttl, Key: []byte(key), Value: value}, checkTTL(ttl))
}

// Get adds what [Client.Get] does.
func (b *Batch[T]) Get(key string) BufferReply[T] {
	return BufferReply[T]{b.add(key, codec.Get{Key: []byte(key)}, nil)}
}

// add adds a request.
func (b *Batch[T]) add(key string, r codec.Request, err error) Reply[T] {
	return Reply[T]{batch: &b.batch, index: b.batch.add(key, r, err)}
}

// add encodes a request and returns its index. The first error is kept for Do to return.
func (b *batch) add(key string, r codec.Request, err error) int {
	if err == nil && b.phase != batchOpen {
		err = fmt.Errorf("%w: %v added to a batch that has been sent: Reset it first", ErrBatch, r.Op())
	}
	begin := len(b.frames)
	if err == nil {
		b.frames, err = r.AppendBinary(b.frames)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("request %d: %w", len(b.requests), err)
	}
	b.requests = append(b.requests, batchRequest{key: key, kind: r.ResponseKind(), frame: b.frames[begin:], err: err})
	return len(b.requests) - 1
}

// Do sends the requests of b and waits for their responses. If one can't be encoded, its
// error is returned and nothing is sent. Otherwise the error is that of a server that
// failed, and says whether any request of b may have been executed; each Reply of b has its
// own error. A batch is sent once: [Batch.Reset] it before using it again, or the error
// matches [ErrBatch].
func (c *Client[T]) Do(ctx context.Context, b *Batch[T]) error { return c.sendBatch(ctx, &b.batch) }

func (c *client) sendBatch(ctx context.Context, b *batch) error {
	if b.err != nil {
		return b.err
	}
	if b.phase != batchOpen {
		return fmt.Errorf("%w: it has been sent: Reset it first", ErrBatch)
	}
	b.phase = batchUnderWay
	parts := c.split(b)
	inParallel(len(parts), func(i int) { c.sendPart(ctx, &parts[i]) })
	b.phase = batchDone
	var failed *RequestError
	executed := false
	for i := range parts {
		executed = executed || parts[i].executed
		failed = cmp.Or(failed, parts[i].err)
	}
	if failed == nil {
		return nil
	}
	return &RequestError{Server: failed.Server, Sent: executed, Err: failed.Err}
}

// batchPart is the requests of a batch that one server executes, in their order.
type batchPart struct {
	server   *server
	requests []*batchRequest
	executed bool // some may have been executed
	err      *RequestError
}

// split sorts the requests by server.
func (c *client) split(b *batch) []batchPart {
	parts := make([]batchPart, len(c.servers.all))
	for i := range b.requests {
		r := &b.requests[i]
		at := c.servers.byKey.pick(r.key)
		parts[at].server = c.servers.all[at]
		parts[at].requests = append(parts[at].requests, r)
	}
	return slices.DeleteFunc(parts, func(p batchPart) bool { return p.server == nil })
}

// sendPart sends the requests of a part, at a time as many as may be in flight on a connection, and stores the
// responses. One more may be added to keep the server parked. After a failure, the rest is not sent.
func (c *client) sendPart(ctx context.Context, p *batchPart) {
	for requests := range slices.Chunk(p.requests, min(c.cfg.MaxInFlight, maxInFlight-1)) {
		if p.err != nil {
			for _, r := range requests {
				r.err = &RequestError{Server: p.server.name, Err: p.err.Err}
			}
			continue
		}
		call := c.newCall("")
		for _, r := range requests {
			call.AddFrame(r.frame, r.kind)
		}
		done, sent, err := p.server.pool.Do(ctx, call)
		p.executed = p.executed || sent || err == nil
		if err != nil {
			p.err = &RequestError{Server: p.server.name, Sent: sent, Err: err}
		}
		for i, r := range requests {
			if err != nil {
				r.err = p.err
			} else {
				r.response = call.Responses[i]
			}
		}
		if done {
			c.calls.Put(call)
		}
	}
}
