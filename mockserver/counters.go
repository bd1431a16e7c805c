package mockserver

import "github.com/throttr-go/throttr/codec"

func (p *sized[T]) insert(x *exchange, m codec.Insert[T]) error {
	ok, err := p.store.insert(m.Key, uint64(m.Quota), ttlOf(m.TTL))
	x.status(m.Key, ok)
	return err
}

func (p *sized[T]) query(x *exchange, m codec.Query) error {
	res := codec.QueryResponse[T]{}
	if r := p.store.read(m.Key); r != nil {
		res = codec.QueryResponse[T]{Found: true, Quota: T(r.quota), TTL: p.remaining(r)}
		x.record, x.unitAt = r, 1+codec.Size[T]()
	}
	x.key, x.ok = m.Key, res.Found
	x.out, _ = res.AppendBinary(x.out) // never fails
	return nil
}

func (p *sized[T]) update(x *exchange, m codec.Update[T]) error {
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
}

func (p *sized[T]) purge(x *exchange, m codec.Purge) error {
	x.status(m.Key, p.store.purge(m.Key))
	return nil
}

func (p *sized[T]) remaining(r *record) codec.TTL[T] {
	t := p.store.remaining(r)
	return codec.TTL[T]{Amount: T(t.amount), Unit: t.unit}
}
