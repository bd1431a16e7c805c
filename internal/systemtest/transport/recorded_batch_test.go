package transport_test

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
)

// batch makes several requests as a batch.
func (p *peer[T]) batch(requests []codec.Request, send, recv []byte) {
	var b throttr.Batch[T]
	var replies []func() (codec.Response, error)
	for _, r := range requests {
		replies = append(replies, add(&b, r))
	}
	p.expect(send, recv)
	require.NoError(p.t, p.client.Do(p.t.Context(), &b))
	var got []byte
	for _, reply := range replies {
		r, err := reply()
		require.NoError(p.t, err)
		got = append(got, testkit.Encode(p.t, r)...)
	}
	require.Equal(p.t, recv, got)
}

// rejection returns the error with which the client rejects r, or nil. A server would accept r
// and lose the record or do nothing.
func rejection[T codec.Value](r codec.Request) error {
	var ttl codec.TTL[T]
	switch r := r.(type) {
	case codec.Insert[T]:
		ttl = r.TTL
	case codec.Set[T]:
		ttl = r.TTL
	case codec.Update[T]:
		if r.Attribute > codec.TimeToLive || r.Change > codec.Decrease {
			return throttr.ErrUpdate
		}
		return nil
	default:
		return nil
	}
	if ttl.Amount == 0 || !ttl.Unit.Known() {
		return throttr.ErrTTL
	}
	return nil
}

// canBatch reports whether a batch can hold r.
func canBatch[T codec.Value](r codec.Request) bool {
	u, ok := r.(codec.Update[T])
	return r.Op() <= codec.OpGet && rejection[T](r) == nil && (!ok || u.Attribute == codec.Quota || u.Change == codec.Patch)
}

// add adds r to a batch and returns a function that returns the response.
func add[T codec.Value](b *throttr.Batch[T], r codec.Request) func() (codec.Response, error) {
	status := func(r throttr.Reply[T]) func() (codec.Response, error) {
		return func() (codec.Response, error) {
			ok, err := r.OK()
			return codec.Status(ok), err
		}
	}
	switch r := r.(type) {
	case codec.Insert[T]:
		return status(b.Insert(string(r.Key), r.Quota, r.TTL))
	case codec.Update[T]:
		return status(b.Update(string(r.Key), r.Attribute, r.Change, r.Value))
	case codec.Purge:
		return status(b.Purge(string(r.Key)))
	case codec.Set[T]:
		return status(b.Set(string(r.Key), r.Value, r.TTL))
	case codec.Query:
		reply := b.Query(string(r.Key))
		return func() (codec.Response, error) {
			c, ok, err := reply.Counter()
			return codec.QueryResponse[T]{Found: ok, Quota: c.Quota, TTL: c.TTL}, err
		}
	case codec.Get:
		reply := b.Get(string(r.Key))
		return func() (codec.Response, error) {
			v, ok, err := reply.Buffer()
			return codec.GetResponse[T]{Found: ok, TTL: v.TTL, Value: v.Value}, err
		}
	}
	panic(fmt.Sprintf("no batch holds %v", r.Op()))
}
