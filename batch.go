package throttr

import (
	"context"
	"errors"
	"fmt"

	"github.com/throttr-go/throttr/codec"
)

// Batch gathers requests that leave in one write and are answered in one round
// trip. Its methods add a request each and return where the answer will be; then
// [Client.Do] sends them all. The zero value is an empty batch. It is for one
// goroutine at a time.
//
// The requests to one server are executed in the order in which they were added.
// Other clients' requests may be executed in between. More than Config.MaxInFlight
// requests to one server take as many round trips as it needs; after one that fails
// the rest is not sent.
type Batch[T codec.Value] struct {
	requests []batchRequest
	frames   []byte
	answers  []answer[T]
	errs     []error // nil, or one per request
	err      error   // of the first request that can't be encoded
	state    batchState
}

type batchState uint8

const (
	batchOpen batchState = iota
	batchUnderWay
	batchDone
)

type batchRequest struct {
	key  string
	kind codec.Kind
	end  int // of its frame in frames
}

// Reply is where the answer to a batched INSERT, UPDATE, PURGE or SET will be.
type Reply[T codec.Value] struct {
	batch *Batch[T]
	index int
}

// CounterReply is where the answer to a batched QUERY will be.
type CounterReply[T codec.Value] struct{ reply Reply[T] }

// BufferReply is where the answer to a batched GET will be.
type BufferReply[T codec.Value] struct{ reply Reply[T] }

// OK returns the answer as the Client's method does. Before Do has returned, the
// error matches [ErrBatch].
func (r Reply[T]) OK() (bool, error) {
	a, err := r.answer()
	return a.ok, err
}

// Counter returns the answer as [Client.Query] does. Before Do has returned, the
// error matches [ErrBatch].
func (r CounterReply[T]) Counter() (Counter[T], bool, error) {
	a, err := r.reply.answer()
	return Counter[T]{Quota: a.quota, TTL: a.ttl}, a.ok, err
}

// Buffer returns the answer as [Client.Get] does. Before Do has returned, the error
// matches [ErrBatch].
func (r BufferReply[T]) Buffer() (Buffer[T], bool, error) {
	a, err := r.reply.answer()
	return Buffer[T]{Value: a.value, TTL: a.ttl}, a.ok, err
}

func (r Reply[T]) answer() (answer[T], error) {
	b := r.batch
	if b == nil || b.state != batchDone || r.index >= len(b.answers) {
		return answer[T]{}, fmt.Errorf("%w: no answer yet: the batch has not been sent", ErrBatch)
	}
	if b.errs != nil && b.errs[r.index] != nil {
		return answer[T]{}, b.errs[r.index]
	}
	return b.answers[r.index], nil
}

// Len returns the number of requests in the batch.
func (b *Batch[T]) Len() int { return len(b.requests) }

// Reset empties the batch for other requests. Replies of earlier ones are void.
func (b *Batch[T]) Reset() {
	clear(b.requests)
	clear(b.answers)
	*b = Batch[T]{requests: b.requests[:0], frames: b.frames[:0], answers: b.answers[:0]}
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
// 2,562,047, which is 292 years in hours: anything else is safe only after a look at
// the record, which Client.Update takes.
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

// add encodes a request. The first error is kept for Do to return.
func (b *Batch[T]) add(key string, r codec.Request, err error) Reply[T] {
	if err == nil && b.state != batchOpen {
		err = fmt.Errorf("%w: %v added to a batch that has been sent: Reset it first", ErrBatch, r.Op())
	}
	if err == nil {
		b.frames, err = r.AppendBinary(b.frames)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("request %d: %w", len(b.requests), err)
	}
	b.requests = append(b.requests, batchRequest{key: key, kind: r.ResponseKind(), end: len(b.frames)})
	return Reply[T]{batch: b, index: len(b.requests) - 1}
}

// part is what of a batch is for one server.
type part[T codec.Value] struct {
	pool     *pool[T]
	requests []int    // indices in the batch, in order; those not yet sent
	call     *call[T] // the ones that are under way
	sending  []int    // their indices
	err      error
}

// Do sends the requests of b and waits for their answers. If one can't be encoded,
// its error is returned and nothing is sent. Otherwise the error is that of the
// first server that failed, and says whether any request of b may have been executed;
// each reply of b tells its own. A batch is sent once:
// [Batch.Reset] it before using it again, or the error matches [ErrBatch].
func (c *Client[T]) Do(ctx context.Context, b *Batch[T]) error {
	if b.err != nil {
		return b.err
	}
	if b.state != batchOpen {
		return fmt.Errorf("%w: it has been sent: Reset it first", ErrBatch)
	}
	b.state = batchUnderWay
	b.answers = append(b.answers[:0], make([]answer[T], len(b.requests))...)
	var first *RequestError
	sent := false
	parts := c.split(b)
	for left := len(b.requests) > 0; left; {
		for _, p := range parts {
			c.sendPart(ctx, b, p)
		}
		left = false
		for _, p := range parts {
			c.awaitPart(ctx, b, p)
			var failed *RequestError
			if errors.As(p.err, &failed) && first == nil {
				first = failed
			}
			sent = sent || failed == nil || failed.Sent
			left = left || len(p.requests) > 0
		}
	}
	b.state = batchDone
	if first == nil {
		return nil
	}
	return &RequestError{Server: first.Server, Sent: sent, Err: first.Err}
}

// split sorts the requests by server.
func (c *Client[T]) split(b *Batch[T]) []*part[T] {
	var parts []*part[T]
	at := make(map[int]*part[T], len(c.pools))
	for i, r := range b.requests {
		server := c.router.pick(r.key)
		p := at[server]
		if p == nil {
			p = &part[T]{pool: c.pools[server]}
			at[server] = p
			parts = append(parts, p)
		}
		p.requests = append(p.requests, i)
	}
	return parts
}

// sendPart queues as many requests as may be in flight.
func (c *Client[T]) sendPart(ctx context.Context, b *Batch[T], p *part[T]) {
	n := min(len(p.requests), c.cfg.MaxInFlight)
	if n == 0 {
		return
	}
	p.sending, p.requests = p.requests[:n], p.requests[n:]
	p.call = c.newCall("")
	for _, i := range p.sending {
		start := 0
		if i > 0 {
			start = b.requests[i-1].end
		}
		p.call.frames = append(p.call.frames, b.frames[start:b.requests[i].end]...)
		p.call.kinds = append(p.call.kinds, b.requests[i].kind)
	}
	p.err = p.pool.send(ctx, p.call, false)
}

// awaitPart waits for what sendPart has queued, and stores the answers.
func (c *Client[T]) awaitPart(ctx context.Context, b *Batch[T], p *part[T]) {
	if p.call == nil {
		return
	}
	mine := true
	if p.err == nil {
		mine, p.err = p.pool.await(ctx, p.call)
	}
	if p.err == nil {
		for k, i := range p.sending {
			b.answers[i] = p.call.answers[k]
		}
	} else {
		b.fail(p.sending, p.err)
		b.fail(p.requests, &RequestError{Server: p.pool.server, Err: p.err})
		p.requests = nil
	}
	if mine {
		c.calls.Put(p.call)
	}
	p.call = nil
}

// fail stores the error of some requests.
func (b *Batch[T]) fail(indices []int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.requests))
	}
	for _, i := range indices {
		b.errs[i] = err
	}
}
