package mockserver

import "github.com/throttr-go/throttr/codec"

func (p *sized[T]) set(x *exchange, m codec.Set[T]) error {
	ok, err := p.store.set(m.Key, m.Value, ttlOf(m.TTL))
	x.status(m.Key, ok)
	return err
}

func (p *sized[T]) get(x *exchange, m codec.Get) error {
	res := codec.GetResponse[T]{}
	if r := p.store.read(m.Key); r != nil {
		res = codec.GetResponse[T]{Found: true, TTL: p.remaining(r), Value: r.value}
		x.record, x.unitAt = r, 1
	}
	x.key, x.ok = m.Key, res.Found
	// The response to a GET is no longer than the SET of the value, so it fits a frame.
	x.out, _ = res.AppendBinary(x.out)
	return nil
}
