package throttr

import (
	"cmp"
	"context"
	"fmt"

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
	requests  []batchRequest
	frames    []byte
	responses []conn.Response
	errs      []error // nil, or one per request
	err       error   // of the first request that can't be encoded
	phase     batchPhase
}

type batchPhase uint8

const (
	batchOpen batchPhase = iota
	batchUnderWay
	batchDone
)

type batchRequest struct {
	key  string
	kind codec.Kind
	end  int // of its frame in frames
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
	if b == nil || b.phase != batchDone || i >= len(b.responses) {
		return conn.Response{}, fmt.Errorf("%w: no response yet: the batch has not been sent", ErrBatch)
	}
	if b.errs != nil && b.errs[i] != nil {
		return conn.Response{}, b.errs[i]
	}
	return b.responses[i], nil
}

// Len returns the number of requests in the batch.
func (b *batch) Len() int { return len(b.requests) }

// Reset empties the batch for other requests. Replies of earlier ones are void.
func (b *batch) Reset() {
	clear(b.requests)
	clear(b.responses)
	*b = batch{requests: b.requests[:0], frames: b.frames[:0], responses: b.responses[:0]}
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
	if err == nil {
		b.frames, err = r.AppendBinary(b.frames)
	}
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("request %d: %w", len(b.requests), err)
	}
	b.requests = append(b.requests, batchRequest{key: key, kind: r.ResponseKind(), end: len(b.frames)})
	return len(b.requests) - 1
}

// Do sends the requests of b and waits for their responses. If one can't be encoded, its
// error is returned and nothing is sent. Otherwise the error is that of a server that
// failed, and says whether any request of b may have been executed; each Reply of b has its
// own error. A batch is sent once: [Batch.Reset] it before using it again, or the error
// matches [ErrBatch].
func (c *Client[T]) Do(ctx context.Context, b *Batch[T]) error { return c.do(ctx, &b.batch) }

func (c *client) do(ctx context.Context, b *batch) error {
	if b.err != nil {
		return b.err
	}
	if b.phase != batchOpen {
		return fmt.Errorf("%w: it has been sent: Reset it first", ErrBatch)
	}
	b.phase = batchUnderWay
	b.responses = append(b.responses[:0], make([]conn.Response, len(b.requests))...)
	parts := c.split(b)
	inParallel(len(parts), func(i int) { c.sendPart(ctx, b, parts[i]) })
	b.phase = batchDone
	return b.outcome(parts)
}

// batchPart is the part of a batch that one server executes. Its requests are indices in
// the batch, in order.
type batchPart struct {
	server   *server
	requests []int
	failed   int  // those from here on have no response
	unsent   int  // of them, those from here on were not sent
	executed bool // requests of this part may have been executed
	err      *RequestError
}

// split sorts the requests by server.
func (c *client) split(b *batch) []*batchPart {
	var parts []*batchPart
	byServer := make(map[*server]*batchPart, len(c.servers.all))
	for i, r := range b.requests {
		s := c.servers.of(r.key)
		p := byServer[s]
		if p == nil {
			p = &batchPart{server: s}
			byServer[s] = p
			parts = append(parts, p)
		}
		p.requests = append(p.requests, i)
	}
	return parts
}

// sendPart sends the requests of a part, at a time as many as may be in flight on a connection, and stores the
// responses. One more may be added to keep the server parked. After a failure, the rest is not sent.
func (c *client) sendPart(ctx context.Context, b *batch, p *batchPart) {
	most := min(c.cfg.MaxInFlight, maxInFlight-1)
	for p.err == nil && p.failed < len(p.requests) {
		p.unsent = min(p.failed+most, len(p.requests))
		call := c.newCall("")
		for _, i := range p.requests[p.failed:p.unsent] {
			call.AddFrame(b.frame(i), b.requests[i].kind)
		}
		done, sent, err := p.server.pool.Do(ctx, call)
		p.executed = p.executed || sent || err == nil
		if err != nil {
			p.err = requestError(p.server.name, 0, sent, err)
		} else {
			for k, i := range p.requests[p.failed:p.unsent] {
				b.responses[i] = call.Responses[k]
			}
			p.failed = p.unsent
		}
		if done {
			c.calls.Put(call)
		}
	}
}

// outcome stores the errors of requests, and returns that of the first part that has failed, with Sent set if any part
// may have been executed.
func (b *batch) outcome(parts []*batchPart) error {
	var failed *RequestError
	executed := false
	for _, p := range parts {
		executed = executed || p.executed
		if p.err == nil {
			continue
		}
		b.fail(p.requests[p.failed:p.unsent], p.err)
		b.fail(p.requests[p.unsent:], requestError(p.server.name, 0, false, p.err.Err))
		failed = cmp.Or(failed, p.err)
	}
	if failed == nil {
		return nil
	}
	return requestError(failed.Server, 0, executed, failed.Err)
}

// frame returns the encoded i-th request.
func (b *batch) frame(i int) []byte {
	start := 0
	if i > 0 {
		start = b.requests[i-1].end
	}
	return b.frames[start:b.requests[i].end]
}

// fail stores the error of some requests.
func (b *batch) fail(indices []int, err error) {
	if b.errs == nil {
		b.errs = make([]error, len(b.requests))
	}
	for _, i := range indices {
		b.errs[i] = err
	}
}
