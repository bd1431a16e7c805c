package mockserver

import (
	"errors"

	"github.com/throttr-go/throttr/codec"
)

// lastOp is the highest op code that does not kill a real server (H6).
const lastOp = 0x1f

// execution is a request that is being executed, and its response.
type execution struct {
	conn    *conn // where the request came from
	op      codec.Op
	request codec.Request
	key     []byte // what the request is about; aliases its bytes
	ok      bool   // the status of the response
	response
}

// status responds to a request about key with one status byte.
func (x *execution) status(key []byte, ok bool) {
	x.key = key
	x.ok = ok
	x.frame, _ = codec.Status(ok).AppendBinary(x.frame)
}

// respond responds to a request that fails if nothing is found. All that is in the response fits its fields, so
// encoding it can't fail.
func (x *execution) respond(found bool, res codec.Response) {
	x.ok = found
	x.frame, _ = res.AppendBinary(x.frame)
}

// protocol executes the requests of one value size.
type protocol interface {
	// execute executes the request at the start of src, puts the response in x, and returns the
	// length of the request. Its errors are codec.ErrShort and breach.
	execute(x *execution, src []byte) (n int, err error)
	// event returns an EVENT.
	event(channel string, payload []byte) ([]byte, error)
}

func newProtocol(s *Server, valueSize int) protocol {
	switch valueSize {
	case 1:
		return newSized[uint8](s)
	case 2:
		return newSized[uint16](s)
	case 4:
		return newSized[uint32](s)
	default:
		return newSized[uint64](s)
	}
}

// sized implements protocol for values of type T.
type sized[T codec.Value] struct{ *Server }

func newSized[T codec.Value](s *Server) sized[T] {
	s.store.max = uint64(^T(0))
	return sized[T]{s}
}

func (p sized[T]) execute(x *execution, src []byte) (n int, err error) {
	x.op = codec.Op(src[0])
	x.request, n, err = codec.DecodeRequest[T](src)
	switch {
	case errors.Is(err, codec.ErrShort):
		return 0, err
	case errors.Is(err, codec.ErrUnknownOp):
		return 0, unknownOp(x.op)
	case err != nil: // the frame announces more than the server's buffer holds
		return 0, breachf("H5", "%v", err)
	}
	x.conn.requests[x.op]++ // before the execution: an INFO counts itself
	x.conn.readBytes += uint64(n)
	p.requests[x.op].mark(p.store.minute, 1)
	return n, p.run(x)
}

// run executes the request of x.
func (p sized[T]) run(x *execution) error {
	switch m := x.request.(type) {
	case codec.Insert[T]:
		ok, err := p.store.insert(m.Key, uint64(m.Quota), ttlOf(m.TTL))
		x.status(m.Key, ok)
		return err
	case codec.Query:
		res := codec.QueryResponse[T]{}
		if r := p.store.read(m.Key); r != nil {
			res = codec.QueryResponse[T]{Found: true, Quota: T(r.quota), TTL: p.remaining(r)}
			x.record = r
			x.unitAt = 1 + codec.Size[T]()
		}
		x.key = m.Key
		x.respond(res.Found, res)
	case codec.Update[T]:
		var ok bool
		var err error
		switch m.Attribute {
		case codec.Quota:
			ok = p.store.updateQuota(m.Key, m.Change, uint64(m.Value))
		case codec.TimeToLive:
			ok, err = p.store.updateTTL(m.Key, m.Change, uint64(m.Value))
		}
		x.status(m.Key, ok)
		return err
	case codec.Purge:
		x.status(m.Key, p.store.purge(m.Key))
	case codec.Set[T]:
		ok, err := p.store.set(m.Key, m.Value, ttlOf(m.TTL))
		x.status(m.Key, ok)
		return err
	case codec.Get:
		res := codec.GetResponse[T]{}
		if r := p.store.read(m.Key); r != nil {
			res = codec.GetResponse[T]{Found: true, TTL: p.remaining(r), Value: r.value}
			x.record = r
			x.unitAt = 1
		}
		x.key = m.Key
		x.respond(res.Found, res)
	case codec.Subscribe:
		p.channels.subscribe(x.conn, string(m.Channel), p.store.now)
		x.status(nil, true)
	case codec.Unsubscribe:
		x.status(nil, p.channels.unsubscribe(x.conn, string(m.Channel)))
	case codec.Publish[T]:
		x.status(nil, p.publish(x.conn, m))
	default:
		p.describe(x)
	}
	return nil
}

// remaining returns what is left of r's TTL a nanosecond later, rounded down to its unit, modulo the value size.
func (p sized[T]) remaining(r *record) codec.TTL[T] {
	t := codec.TTL[T]{Unit: r.unit}
	if r.expires > p.store.now {
		t.Amount = T((r.expires - p.store.now - 1) / uint64(r.unit.Duration()))
	}
	return t
}

// publish sends the EVENTs before the response, so that a publisher that is subscribed
// gets its own EVENT first (H8). It returns false if nobody is subscribed.
func (p sized[T]) publish(from *conn, m codec.Publish[T]) bool {
	subs := p.channels[string(m.Channel)]
	event, _ := codec.Event[T](m).AppendBinary(nil) // as long as the PUBLISH, so it fits a frame
	for _, sub := range subs {
		if sub.conn.gone {
			continue
		}
		sub.read += uint64(len(m.Payload))
		p.deliver(from, sub.conn, event, len(m.Payload))
	}
	return len(subs) > 0
}

func (p sized[T]) event(channel string, payload []byte) ([]byte, error) {
	return codec.Event[T]{Channel: []byte(channel), Payload: payload}.AppendBinary(nil)
}

// unknownOp returns the violation of a request that does not exist.
func unknownOp(op codec.Op) error {
	switch {
	case op == codec.OpEvent:
		return breachf("H27", "op 0x%02x from a client is executed as a command by a real server", byte(op))
	case op > lastOp:
		return breachf("H6", "op 0x%02x kills a real server", byte(op))
	default:
		return breachf("H6", "op 0x%02x stalls the connection on a real server", byte(op))
	}
}
