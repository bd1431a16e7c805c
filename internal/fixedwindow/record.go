package fixedwindow

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
)

// maxRecordKey is the longest key that is part of the names of its records as it is. With
// it, all names of a lookup fit one packet.
const maxRecordKey = 80

// recordName returns what comes before and after the bucket in the names of records:
//
//	rl:<scale>:<bucket>:<key>
//	rh:<scale>:<bucket>:<SHA-256 of the key, in base64>     for a key over 80 bytes
//
// Those of aligned windows begin with al: and ah:.
//
// Neither scale nor bucket contains a colon, so two windows never share a name. Each
// window has a name of its own, which is not used again as long as a server may keep its
// record. Servers that keep expired records dead for 10 s (H1) or alive (H2) therefore do no
// harm.
func recordName(key string, t timing) (prefix, suffix string) {
	kind, hashed := "rl:", "rh:"
	if t.aligned {
		kind, hashed = "al:", "ah:"
	}
	if len(key) <= maxRecordKey {
		return kind + t.scale.String() + ":", ":" + key
	}
	sum := sha256.Sum256([]byte(key))
	return hashed + t.scale.String() + ":", ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// appendName appends the name of a bucket's record.
func (e *entry[T]) appendName(dst []byte, bucket int64) []byte {
	dst = append(dst, e.prefix...)
	dst = strconv.AppendInt(dst, bucket, 10)
	return append(dst, e.suffix...)
}

// call returns an empty call for the records of e.
func (e *entry[T]) call(a conn.Atomicity) *conn.Call[T] {
	cl := e.backend.calls.Get()
	cl.Atomicity = a
	cl.Bound = conn.TTLBound{Known: true, Unit: e.timing.unit, Most: e.timing.span + e.timing.margin}
	return cl
}

// The following add a request for a bucket's record to a call. Encoding does not fail: no
// name is too long.

func (e *entry[T]) addQuery(cl *conn.Call[T], bucket int64) {
	cl.Key = e.appendName(cl.Key[:0], bucket)
	conn.Add(cl, codec.Query{Key: cl.Key})
}

func (e *entry[T]) addIncrease(cl *conn.Call[T], bucket int64, n uint64) {
	cl.Key = e.appendName(cl.Key[:0], bucket)
	conn.Add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: T(n), Key: cl.Key})
}

func (e *entry[T]) addPatch(cl *conn.Call[T], bucket int64, count uint64) {
	cl.Key = e.appendName(cl.Key[:0], bucket)
	conn.Add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Patch, Value: T(count), Key: cl.Key})
}

func (e *entry[T]) addInsert(cl *conn.Call[T], bucket int64, count uint64) {
	t := e.timing
	cl.Key = e.appendName(cl.Key[:0], bucket)
	conn.Add(cl, codec.Insert[T]{Key: cl.Key, Quota: T(count), TTL: codec.TTL[T]{Amount: T(t.span + t.margin), Unit: t.unit}})
}

func (e *entry[T]) addPurge(cl *conn.Call[T], bucket int64) {
	cl.Key = e.appendName(cl.Key[:0], bucket)
	conn.Add(cl, codec.Purge{Key: cl.Key})
}

// do sends a call and waits for its replies. After an error the call must not be used any
// more.
func (e *entry[T]) do(ctx context.Context, cl *conn.Call[T]) (sent bool, err error) {
	done, sent, err := e.server.Do(ctx, cl)
	if done && err != nil {
		e.backend.calls.Put(cl)
	}
	return sent, err
}

// doTimed does the same, and returns the times between which the call was executed.
func (e *entry[T]) doTimed(ctx context.Context, cl *conn.Call[T]) (from, to time.Time, sent bool, err error) {
	from = e.backend.now()
	if sent, err = e.do(ctx, cl); err != nil {
		return from, from, sent, err
	}
	return from, e.backend.now(), sent, nil
}

// increase adds n to the record of a bucket, if n is over 0, and reads it. The name is that
// of the record, and from is a time shortly before.
func (e *entry[T]) increase(ctx context.Context, bucket int64, name []byte, n uint64, from time.Time) (o observation, sent bool, err error) {
	cl := e.call(conn.SingleRead)
	if n > 0 {
		conn.Add(cl, codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: T(n), Key: name})
	}
	conn.Add(cl, codec.Query{Key: name})
	if sent, err = e.do(ctx, cl); err != nil {
		return observation{}, sent, err
	}
	o = observe(bucket, cl.Replies[len(cl.Replies)-1], from, e.backend.now())
	o.wrapped = n > 0 && cl.Replies[0].OK && o.count < n // both are one read of the server
	e.backend.calls.Put(cl)
	return o, sent, nil
}

// purge removes the records of live windows.
func (e *entry[T]) purge(ctx context.Context, live ...observation) (sent bool, err error) {
	if len(live) == 0 {
		return false, nil
	}
	cl := e.call(conn.Interruptible)
	for _, o := range live {
		e.addPurge(cl, o.bucket)
	}
	if sent, err = e.do(ctx, cl); err == nil {
		e.backend.calls.Put(cl)
	}
	return sent, err
}
