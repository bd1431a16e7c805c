package mockserver

import (
	"errors"

	"github.com/throttr-go/throttr/codec"
)

// lastOp is the highest op code that does not kill a real server (H6).
const lastOp = 0x1f

// exchange is a request that is being executed, and its response.
type exchange struct {
	conn    *conn // where the request came from
	op      codec.Op
	out     []byte // the response
	key     []byte // what the request is about; aliases its bytes
	ok      bool   // the status of the response
	request codec.Request

	record *record // whose TTL unit is in the response; nil: none
	unitAt int     // where in the response
}

// status responds to a request about key with one status byte.
func (x *exchange) status(key []byte, ok bool) {
	x.key, x.ok = key, ok
	x.out, _ = codec.Status(ok).AppendBinary(x.out)
}

// respond responds to a request that never fails, or whose handler sets ok itself. The
// response was made to fit its frame.
func (x *exchange) respond(res codec.Response) {
	x.ok = true
	x.out, _ = res.AppendBinary(x.out)
}

// count counts the request.
func (x *exchange) count() {
	c := x.conn
	c.requests[x.op]++
	c.srv.requests[x.op].mark(c.srv.store.minute, 1)
}

// handler decodes and executes the request at the start of src, puts the response in x,
// and returns the length of the request. Its errors are codec.ErrShort and *breach.
type handler func(x *exchange, src []byte) (n int, err error)

// commands executes the requests of one value size.
type commands interface {
	// handler returns the handler of op, or nil.
	handler(op codec.Op) handler
	// event appends an EVENT to dst.
	event(dst []byte, channel string, payload []byte) ([]byte, error)
}

func newCommands(st *store, valueSize int, observed bool) commands {
	switch valueSize {
	case 1:
		return newSized[uint8](st, observed)
	case 2:
		return newSized[uint16](st, observed)
	case 4:
		return newSized[uint32](st, observed)
	default:
		return newSized[uint64](st, observed)
	}
}

// sized implements commands for values of type T, with a method for each request.
type sized[T codec.Value] struct {
	store    *store
	handlers [lastOp + 1]handler
}

func newSized[T codec.Value](st *store, observed bool) *sized[T] {
	p := &sized[T]{store: st}
	p.handlers[codec.OpInsert] = handle(observed, codec.DecodeInsert[T], p.insert)
	p.handlers[codec.OpQuery] = handle(observed, codec.DecodeQuery, p.query)
	p.handlers[codec.OpUpdate] = handle(observed, codec.DecodeUpdate[T], p.update)
	p.handlers[codec.OpPurge] = handle(observed, codec.DecodePurge, p.purge)
	p.handlers[codec.OpSet] = handle(observed, codec.DecodeSet[T], p.set)
	p.handlers[codec.OpGet] = handle(observed, codec.DecodeGet, p.get)
	p.handlers[codec.OpList] = handle(observed, codec.DecodeList, p.list)
	p.handlers[codec.OpInfo] = handle(observed, codec.DecodeInfo, p.info)
	p.handlers[codec.OpStat] = handle(observed, codec.DecodeStat, p.stat)
	p.handlers[codec.OpStats] = handle(observed, codec.DecodeStats, p.stats)
	p.handlers[codec.OpSubscribe] = handle(observed, codec.DecodeSubscribe, p.subscribe)
	p.handlers[codec.OpUnsubscribe] = handle(observed, codec.DecodeUnsubscribe, p.unsubscribe)
	p.handlers[codec.OpPublish] = handle(observed, codec.DecodePublish[T], p.publish)
	p.handlers[codec.OpConnections] = handle(observed, codec.DecodeConnections, p.connections)
	p.handlers[codec.OpConnection] = handle(observed, codec.DecodeConnection, p.connection)
	p.handlers[codec.OpChannels] = handle(observed, codec.DecodeChannels, p.listChannels)
	p.handlers[codec.OpChannel] = handle(observed, codec.DecodeChannel, p.channel)
	p.handlers[codec.OpWhoAmI] = handle(observed, codec.DecodeWhoAmI, p.whoami)
	return p
}

func (p *sized[T]) handler(op codec.Op) handler {
	if op > lastOp {
		return nil
	}
	return p.handlers[op]
}

// handle returns the handler that decodes a request and executes it. It keeps the
// request only for an observer, since that allocates.
func handle[M codec.Request](observed bool,
	decode func([]byte) (M, int, error), execute func(*exchange, M) error) handler {
	return func(x *exchange, src []byte) (int, error) {
		m, n, err := decode(src)
		if errors.Is(err, codec.ErrShort) {
			return 0, codec.ErrShort
		}
		if err != nil {
			// The op is known, so the frame announces more than the server's buffer holds.
			return 0, breachf("H5", "%v", err)
		}
		x.count() // before the execution: an INFO counts itself
		if err := execute(x, m); err != nil {
			return 0, err
		}
		if observed {
			x.request = m
		}
		return n, nil
	}
}

// unknownOp returns the violation of a request that has no handler.
func unknownOp(op codec.Op) error {
	if op == codec.OpEvent {
		return breachf("H27", "op 0x%02x from a client is executed as a command by a real server", byte(op))
	}
	if op > lastOp {
		return breachf("H6", "op 0x%02x kills a real server", byte(op))
	}
	return breachf("H6", "op 0x%02x stalls the connection on a real server", byte(op))
}
