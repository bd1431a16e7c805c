package mockserver

import (
	"errors"

	"github.com/throttr-go/throttr/codec"
)

// lastOp is the highest op code that a real server looks at (H6).
const lastOp = 0x1f

// exchange is one request under way, and its response.
type exchange struct {
	conn    *conn // where the request came from
	op      codec.Op
	out     []byte // the response
	key     []byte // what the request was about; aliases its bytes
	ok      bool   // the response's status
	request codec.Request
}

// status answers a request about key with one status byte.
func (x *exchange) status(key []byte, ok bool) {
	x.key, x.ok = key, ok
	x.out, _ = codec.Status(ok).AppendBinary(x.out)
}

// count counts the request.
func (x *exchange) count() {
	c := x.conn
	c.requests[x.op]++
	c.srv.requests[x.op].mark(c.srv.store.minute, 1)
}

// answer answers a request that never fails, or sets ok itself. What is answered
// was made to fit its frame.
func (x *exchange) answer(res codec.Response) {
	x.ok = true
	x.out, _ = res.AppendBinary(x.out)
}

// handler executes the request at the start of src, answers it in x and returns
// its length. Its errors are codec.ErrShort and a *breach.
type handler func(x *exchange, src []byte) (n int, err error)

// player plays the requests of one value size.
type player interface {
	// handler returns what plays op, or nil.
	handler(op codec.Op) handler
	// event appends an EVENT to dst.
	event(dst []byte, channel string, payload []byte) ([]byte, error)
}

func newPlayer(st *store, valueSize int, observed bool) player {
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

// sized is the player for values of type T. Each of its requests has a method,
// beside the others of its group.
type sized[T codec.Value] struct {
	store    *store
	handlers [lastOp + 1]handler
}

func newSized[T codec.Value](st *store, observed bool) *sized[T] {
	p := &sized[T]{store: st}
	p.handlers[codec.OpInsert] = play(observed, codec.DecodeInsert[T], p.insert)
	p.handlers[codec.OpQuery] = play(observed, codec.DecodeQuery, p.query)
	p.handlers[codec.OpUpdate] = play(observed, codec.DecodeUpdate[T], p.update)
	p.handlers[codec.OpPurge] = play(observed, codec.DecodePurge, p.purge)
	p.handlers[codec.OpSet] = play(observed, codec.DecodeSet[T], p.set)
	p.handlers[codec.OpGet] = play(observed, codec.DecodeGet, p.get)
	p.handlers[codec.OpList] = play(observed, codec.DecodeList, p.list)
	p.handlers[codec.OpInfo] = play(observed, codec.DecodeInfo, p.info)
	p.handlers[codec.OpStat] = play(observed, codec.DecodeStat, p.stat)
	p.handlers[codec.OpStats] = play(observed, codec.DecodeStats, p.stats)
	p.handlers[codec.OpSubscribe] = play(observed, codec.DecodeSubscribe, p.subscribe)
	p.handlers[codec.OpUnsubscribe] = play(observed, codec.DecodeUnsubscribe, p.unsubscribe)
	p.handlers[codec.OpPublish] = play(observed, codec.DecodePublish[T], p.publish)
	p.handlers[codec.OpConnections] = play(observed, codec.DecodeConnections, p.connections)
	p.handlers[codec.OpConnection] = play(observed, codec.DecodeConnection, p.connection)
	p.handlers[codec.OpChannels] = play(observed, codec.DecodeChannels, p.listChannels)
	p.handlers[codec.OpChannel] = play(observed, codec.DecodeChannel, p.channel)
	p.handlers[codec.OpWhoAmI] = play(observed, codec.DecodeWhoAmI, p.whoami)
	return p
}

func (p *sized[T]) handler(op codec.Op) handler {
	if op > lastOp {
		return nil
	}
	return p.handlers[op]
}

// play makes a handler of a decoder and of what executes the decoded request.
// The request is kept, in a box on the heap, only for an observer.
func play[M codec.Request](observed bool, decode func([]byte) (M, int, error), execute func(*exchange, M) error) handler {
	return func(x *exchange, src []byte) (int, error) {
		m, n, err := decode(src)
		if err != nil {
			return 0, undecodable(err)
		}
		x.count() // first: an INFO counts itself
		if err := execute(x, m); err != nil {
			return 0, err
		}
		if observed {
			x.request = m
		}
		return n, nil
	}
}

// undecodable turns a final decoding error into a violation. The op is known, so
// it can only be about a frame that announces more than the server's buffer.
func undecodable(err error) error {
	if errors.Is(err, codec.ErrShort) {
		return codec.ErrShort
	}
	return breachf("H5", "%v", err)
}

// unplayed is the violation of a request that has no handler.
func unplayed(op codec.Op) error {
	if op > lastOp {
		return breachf("H6", "op 0x%02x kills a real server", byte(op))
	}
	return breachf("H6", "op 0x%02x stalls the connection on a real server", byte(op))
}
