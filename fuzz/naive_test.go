package fuzz_test

import "errors"

// A second decoder, written from docs/internals/protocol.md alone, to compare package codec with. It
// is slow and simple: it reads item after item, in the order of the wire, and records them.

// The errors for bytes that are not a complete frame.
var (
	errNaiveShort   = errors.New("short")
	errNaiveInvalid = errors.New("invalid")
)

// longest is the length of the longest request and EVENT (H5).
const longest = 8096

// naive reads items from src. Its methods panic with one of the errors above.
type naive struct {
	src   []byte
	at    int
	size  int   // of a value, in bytes
	items []any // the items: a uint64 for each number, a string for each text
}

// decodeNaive calls read to decode the frame at the start of src.
func decodeNaive(src []byte, size int, read func(*naive)) (items []any, length int, wantErr error) {
	d := &naive{src: src, size: size}
	defer func() {
		switch r := recover(); r {
		case nil:
		case errNaiveShort, errNaiveInvalid:
			items, length, wantErr = nil, 0, r.(error)
		default:
			panic(r)
		}
	}()
	read(d)
	return d.items, d.at, nil
}

// take returns the next n bytes.
func (d *naive) take(n uint64) []byte {
	if n > uint64(len(d.src)-d.at) {
		panic(errNaiveShort)
	}
	b := d.src[d.at : d.at+int(n)]
	d.at += int(n)
	return b
}

// number reads a number of n bytes, the lowest first, without recording it.
func (d *naive) number(n int) uint64 {
	sum, weight := uint64(0), uint64(1)
	for _, b := range d.take(uint64(n)) {
		sum += uint64(b) * weight
		weight *= 256
	}
	return sum
}

func (d *naive) note(items ...any) { d.items = append(d.items, items...) }

// byte, value and long read a number of 1 byte, of the value size, and of 8 bytes.
func (d *naive) byte()  { d.note(d.number(1)) }
func (d *naive) value() { d.note(d.number(d.size)) }
func (d *naive) long()  { d.note(d.number(8)) }

func (d *naive) longs(n int) {
	for range n {
		d.long()
	}
}

func (d *naive) text(n uint64) { d.note(string(d.take(n))) }

// padded reads a text of n bytes, without the zeros at its end.
func (d *naive) padded(n uint64) {
	b := d.take(n)
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	d.note(string(b))
}

// key reads a length and as many bytes.
func (d *naive) key() { d.text(d.number(1)) }

// bounded panics if the frame, with rest more bytes, is too long.
func (d *naive) bounded(rest ...uint64) {
	total := uint64(d.at)
	for _, n := range rest {
		if n > longest {
			panic(errNaiveInvalid)
		}
		total += n
	}
	if total > longest {
		panic(errNaiveInvalid)
	}
}

// is reads a byte and panics unless it is a wanted one.
func (d *naive) is(wanted ...uint64) uint64 {
	b := d.number(1)
	for _, w := range wanted {
		if b == w {
			return b
		}
	}
	panic(errNaiveInvalid)
}

// request reads any request.
func (d *naive) request() {
	op := d.number(1)
	d.note(op)
	switch op {
	case 0x01: // INSERT
		d.value()
		d.byte()
		d.value()
		d.key()
	case 0x02, 0x04, 0x06, 0x09, 0x11, 0x12, 0x17: // QUERY PURGE GET STAT SUBSCRIBE UNSUBSCRIBE CHANNEL
		d.key()
	case 0x03: // UPDATE
		d.byte()
		d.byte()
		d.value()
		d.key()
	case 0x05: // SET
		d.byte()
		d.value()
		key := d.number(1)
		value := d.number(d.size)
		d.bounded(key, value)
		d.text(key)
		d.text(value)
	case 0x07, 0x08, 0x10, 0x14, 0x16, 0x18: // LIST INFO STATS CONNECTIONS CHANNELS WHOAMI
	case 0x13: // PUBLISH
		d.message()
	case 0x15: // CONNECTION
		d.text(16)
	default:
		panic(errNaiveInvalid)
	}
}

// message reads the rest of a PUBLISH or EVENT, after the op.
func (d *naive) message() {
	channel := d.number(1)
	payload := d.number(d.size)
	d.bounded(channel, payload)
	d.text(channel)
	d.text(payload)
}

// event reads an EVENT.
func (d *naive) event() {
	d.is(0x19)
	d.message()
}

// found reads the first byte of a response, and reports whether more follows.
func (d *naive) found() bool {
	status := d.is(0, 1)
	d.note(status)
	return status == 1
}

func (d *naive) status() { d.found() }

func (d *naive) query() {
	if d.found() {
		d.value()
		d.byte()
		d.value()
	}
}

func (d *naive) get() {
	if d.found() {
		d.byte()
		d.value()
		n := d.number(d.size)
		d.bounded(n)
		d.text(n)
	}
}

func (d *naive) stat() {
	if d.found() {
		d.longs(4)
	}
}

// fragments reads a response in fragments. Entry reads an entry and returns the length of
// its name, which follows all entries.
func (d *naive) fragments(named bool, entry func() uint64) {
	d.is(1)
	count := d.number(8)
	d.note(count)
	for i := uint64(0); i < count; i++ {
		index, entries := d.number(8), d.number(8)
		if index != i+1 {
			panic(errNaiveInvalid)
		}
		d.note(entries)
		var names []uint64
		for range entries {
			names = append(names, entry())
		}
		total := uint64(0)
		for _, n := range names {
			total += n
		}
		if total > uint64(len(d.src)-d.at) {
			panic(errNaiveShort)
		}
		for _, n := range names {
			if named {
				d.text(n)
			}
		}
	}
}

func (d *naive) list() {
	d.fragments(true, func() uint64 {
		b := d.take(uint64(3 + 8 + d.size)) // an incomplete entry is short, even if it is invalid
		e := &naive{src: b, size: d.size}
		n := e.number(1)
		e.note(e.is(0, 1))
		e.byte()
		e.long()
		e.value()
		d.note(e.items...)
		return n
	})
}

func (d *naive) stats() {
	d.fragments(true, func() uint64 {
		e := &naive{src: d.take(1 + 4*8)}
		n := e.number(1)
		e.longs(4)
		d.note(e.items...)
		return n
	})
}

func (d *naive) channels() {
	d.fragments(true, func() uint64 {
		e := &naive{src: d.take(1 + 3*8)}
		n := e.number(1)
		e.longs(3)
		d.note(e.items...)
		return n
	})
}

func (d *naive) connections() {
	d.fragments(false, func() uint64 {
		d.entry()
		return 0
	})
}

func (d *naive) connection() {
	if d.found() {
		d.entry()
	}
}

// entry reads the 237 bytes of a connection.
func (d *naive) entry() {
	d.text(16)
	d.byte()
	d.byte()
	d.byte()
	d.padded(16)
	d.note(d.number(2))
	d.longs(1 + 6 + 18)
}

func (d *naive) channel() {
	if !d.found() {
		return
	}
	n := d.number(8)
	d.note(n)
	for range n {
		d.text(16)
		d.longs(3)
	}
}

func (d *naive) info() {
	d.is(1)
	d.longs(52)
	d.padded(16)
}

func (d *naive) whoAmI() {
	d.is(1)
	d.text(16)
}
