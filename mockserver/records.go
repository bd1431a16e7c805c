package mockserver

import "github.com/throttr-go/throttr/codec"

func (p *sized[T]) list(x *exchange, _ codec.List) error {
	entries := make([]codec.ListEntry[T], 0, len(p.store.records))
	garbled := p.store.each(func(r *record, key []byte) {
		e := codec.ListEntry[T]{Key: key, Unit: r.unit, Expires: r.expires, Buffer: r.buffer, Bytes: T(codec.Size[T]())}
		if r.buffer {
			e.Bytes = T(len(r.value))
		}
		entries = append(entries, e)
	})
	x.respond(codec.ListResponse[T]{Fragments: fragments(entries,
		func(e codec.ListEntry[T]) int { return 11 + len(e.Key) })})
	p.store.garbler.spoil(x.out, garbled)
	return nil
}

func (p *sized[T]) stats(x *exchange, _ codec.Stats) error {
	entries := make([]codec.StatsEntry, 0, len(p.store.records))
	garbled := p.store.each(func(r *record, key []byte) {
		entries = append(entries, codec.StatsEntry{Key: key, Usage: r.usage(p.store.minute)})
	})
	x.respond(codec.StatsResponse{Fragments: fragments(entries,
		func(e codec.StatsEntry) int { return 33 + len(e.Key) })})
	p.store.garbler.spoil(x.out, garbled)
	return nil
}

func (p *sized[T]) stat(x *exchange, m codec.Stat) error {
	res := codec.StatResponse{}
	if r := p.store.read(m.Key); r != nil {
		res = codec.StatResponse{Found: true, Usage: r.usage(p.store.minute)}
	}
	x.key = m.Key
	x.respond(res)
	x.ok = res.Found
	return nil
}

// each calls f for all live records, in an order that means nothing, and counts as a read of each. Then it calls f for
// records that never existed (H14), and reports whether there were any.
func (st *store) each(f func(r *record, key []byte)) (garbled bool) {
	var keys []byte // of all records, in one allocation or a few
	call := func(r *record) {
		start := len(keys)
		keys = append(keys, r.key...)
		f(r, keys[start:])
	}
	for _, r := range st.collector.events.records {
		if !r.dead {
			r.reads.mark(st.minute, 1)
			call(r)
		}
	}
	ghosts := st.ghosts()
	for _, r := range ghosts {
		call(r)
	}
	return len(ghosts) > 0
}

// maxFragment bounds a fragment, in bytes as a real server counts them.
const maxFragment = 2048

// fragments splits entries as a real server does.
func fragments[E any](entries []E, size func(E) int) (all [][]E) {
	start, sum := 0, 0
	for i, e := range entries {
		n := size(e)
		if sum+n > maxFragment {
			all = append(all, entries[start:i])
			start, sum = i, 0
		}
		sum += n
	}
	if start < len(entries) {
		all = append(all, entries[start:])
	}
	return all
}
