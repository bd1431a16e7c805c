package rediswindow

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/throttr-go/throttr/internal/redisreply"
)

// failedByte is the byte of a limit of a call that has failed.
const failedByte = 255

// request is a request of calls. See lua/windows.lua for what it sends and receives.
type request struct {
	head     []byte // the first argument
	equals   []equals
	keys     []keyOf
	index    map[string]int // of keys, if there are several calls
	policies []*policy
	known    map[policy]int // the index of policies, if there are several calls
	sizes    []int          // of the value of each policy
	rest     []byte         // names and policies, one after the other
	ends     []int          // of each of them
	args     []string       // all names, and all arguments
	total    int            // limits of all equals
	id       int64          // of the first window that opens
}

// equals is a call, or several that are equal.
type equals struct {
	at     int // of its bytes in head
	before int // the index of the equals before that begin with the same key, or -1

	bytes, values int // where the response has them
	all           int // how many of the calls are granted
	err           error
}

// keyOf is a key of a request.
type keyOf struct {
	key  string
	last int // the index of the last equals that begin with it, or -1
}

var requests = sync.Pool{New: func() any { return &request{index: map[string]int{}, known: map[policy]int{}} }}

// request sends calls with one script, and stores in them what it returns, unless all have the same error.
func (b *Backend) request(ctx context.Context, calls []*combined) error {
	r := requests.Get().(*request)
	if err := r.build(b, calls); err != nil {
		return err
	}
	response, err := b.eval(ctx, windowsScript, r.args[:len(r.keys)], r.args[len(r.keys):])
	if err != nil {
		return err // the client may still have what was to be sent
	}
	now, err := r.read(response)
	if err != nil {
		return err
	}
	for _, c := range calls {
		r.finish(&c.Value, now, response)
	}
	r.empty()
	return nil
}

// build makes the arguments of the script.
func (r *request) build(b *Backend, calls []*combined) error {
	now, grace, err := b.time()
	if err != nil {
		return err
	}
	r.id = 1 + rand.Int64N(1<<43) // two windows of a key and limit hardly have the same one
	for _, f := range [...]float64{now, grace, float64(r.id)} {
		r.head = appendFloat(r.head, f)
	}
	for _, c := range calls {
		r.add(&c.Value, len(calls) > 1)
	}
	for i := range r.keys {
		r.rest = b.appendName(r.rest, r.keys[i].key)
		r.ends = append(r.ends, len(r.rest))
	}
	r.rest = append(r.rest, r.head...)
	r.ends = append(r.ends, len(r.rest))
	for _, p := range r.policies {
		var size int
		r.rest, size = b.appendPolicy(r.rest, p)
		r.ends, r.sizes = append(r.ends, len(r.rest)), append(r.sizes, size)
	}
	all, begin := string(r.rest), 0
	for _, end := range r.ends {
		r.args = append(r.args, all[begin:end])
		begin = end
	}
	return nil
}

// maxSearched bounds how many equals of a key are compared with a call.
const maxSearched = 8

// add adds a call to equals, or as equals of its own.
func (r *request) add(c *call, several bool) {
	begin, first := len(r.head), &c.parts[0]
	size := len(c.parts)
	r.head = append(r.head, 1, byte(size))
	if first.verb == deleteAll {
		r.head[begin+1] = 0
	}
	for i := range c.parts {
		p := &c.parts[i]
		r.head = append(r.head, byte(1+r.keyIndex(p.key, several)), byte(1+r.policyIndex(&p.policy, several)))
	}
	key := &r.keys[r.head[begin+2]-1]
	if several && (first.verb == take || first.verb == peek || first.verb == count && !first.limit.Algorithm.Rolling()) {
		e := key.last
		for n := 0; e >= 0 && n < maxSearched; n++ {
			old := &r.equals[e]
			if same := old.at + 2 + 2*size; same <= begin && bytes.Equal(r.head[old.at+1:same], r.head[begin+1:]) {
				c.equals, c.rank = e, int(r.head[old.at])
				r.head[old.at]++
				r.head = r.head[:begin]
				return
			}
			e = old.before
		}
	}
	c.equals, c.rank = len(r.equals), 0
	r.equals = append(r.equals, equals{at: begin, before: key.last})
	key.last = c.equals
	r.total += size
}

// keyIndex returns the index of a key.
func (r *request) keyIndex(key string, several bool) int {
	if several {
		if i, ok := r.index[key]; ok {
			return i
		}
		r.index[key] = len(r.keys)
	} else {
		for i := range r.keys {
			if r.keys[i].key == key {
				return i
			}
		}
	}
	r.keys = append(r.keys, keyOf{key, -1})
	return len(r.keys) - 1
}

// policyIndex returns the index of a policy. Most calls have that of the last one.
func (r *request) policyIndex(p *policy, several bool) int {
	last := len(r.policies) - 1
	if last >= 0 && *r.policies[last] == *p {
		return last
	}
	if several {
		if i, ok := r.known[*p]; ok {
			return i
		}
		r.known[*p] = last + 1
	}
	r.policies = append(r.policies, p)
	return last + 1
}

// appendPolicy appends a policy, and returns how long a value of it is.
func (b *Backend) appendPolicy(to []byte, p *policy) ([]byte, int) {
	if p.verb == deleteAll {
		to = append(to, byte(p.verb), 0)
		to = append(to, make([]byte, 5*8)...)
		return append(append(to, p.scales...), 0), 8
	}
	a := algorithms[p.limit.Algorithm]
	to = append(to, byte(p.verb), a.letter)
	to = appendFloat(to, float64(p.limit.Scale.Microseconds()))
	size := 0
	switch p.verb {
	case back:
		when, epoch := int64(0), p.id
		if p.limit.Algorithm.Rolling() {
			when, epoch = whenOf(p.id)
		}
		remove := 0.0
		if p.remove {
			remove = 1
		}
		for _, f := range [...]float64{float64(epoch), float64(when), float64(min(p.n, MaxCount)), remove} {
			to = appendFloat(to, f)
		}
		to = append(to, 0)
	case reset:
		to = append(to, make([]byte, 4*8+1)...)
	default:
		begin := len(to) + 4*8
		most := a.most(&b.options)
		if p.verb == take || p.verb == peek {
			most = p.limit.Max
		}
		to = append(a.appendNumbers(to, p, most), 0)
		size = a.size + len(to) - 1 - begin
	}
	return appendField(to, &p.limit), size
}

func appendFloat(to []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(to, math.Float64bits(f))
}

// float returns the double at the beginning of s.
func float(s string) float64 {
	_ = s[7]
	return math.Float64frombits(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
}

// read finds what a response has for each of the equals, and returns its time.
func (r *request) read(response string) (now int64, err error) {
	at, value := 8, 8+r.total
	ok := len(response) >= value
	for i := 0; ok && i < len(r.equals); i++ {
		e := &r.equals[i]
		m, size := int(r.head[e.at]), max(1, int(r.head[e.at+1]))
		e.bytes, e.values, e.all = at, value, m
		bytes := response[at : at+size]
		at += size
		if bytes[0] == failedByte {
			ok = value < len(response) && value+1+int(response[value]) <= len(response)
			if ok {
				text := response[value+1:][:response[value]]
				e.err, value = redisreply.New(errors.New(text)), value+1+len(text)
			}
			continue
		}
		for w := range size {
			ok = ok && int(bytes[w]) <= m
			e.all = min(e.all, int(bytes[w]))
			value += r.sizes[r.head[e.at+3+2*w]-1]
		}
	}
	if !ok || value != len(response) {
		return 0, fmt.Errorf("script returned %q", response)
	}
	return int64(float(response)), nil
}

// finish stores in a call what a response has for it.
func (r *request) finish(c *call, now int64, response string) {
	e := &r.equals[c.equals]
	if c.err = e.err; c.err != nil {
		return
	}
	c.n, c.id = max(0, min(1, e.all-c.rank)), r.id
	at := e.values
	for i := range c.parts {
		p := &c.parts[i].policy
		value := response[at : at+r.sizes[r.head[e.at+3+2*i]-1]]
		at += len(value)
		switch p.verb {
		case back, reset:
		case deleteAll:
			c.n = int(float(value))
		default:
			c.windows = append(c.windows, p.window(now, value, int(response[e.bytes+i]), e.all, c.rank))
		}
	}
}

// empty empties a request, and keeps it for others.
func (r *request) empty() {
	clear(r.keys)
	clear(r.policies)
	clear(r.args)
	clear(r.index)
	clear(r.known)
	*r = request{
		head: r.head[:0], equals: r.equals[:0], keys: r.keys[:0], index: r.index, policies: r.policies[:0], known: r.known,
		sizes: r.sizes[:0], rest: r.rest[:0], ends: r.ends[:0], args: r.args[:0],
	}
	requests.Put(r)
}
