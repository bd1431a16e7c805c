package rediswindow

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// List implements [window.Backend]. Without keys it asks all primaries for the names of hashes. Each hash is two
// requests: what it has, and then the windows.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	read := func(name string) ([]window.Listed, error) { return b.listHash(ctx, name) }
	if len(keys) == 0 {
		return list(b, "list", b.client.Scan(ctx, glob.Replace(b.prefix)+"{[kh]:*}"+version), read)
	}
	return list(b, "list", func(yield func(string, error) bool) {
		for _, key := range keys {
			if !yield(b.nameOf(key), nil) {
				return
			}
		}
	}, read)
}

// list returns what read finds in hashes, one after the other. What is damaged is passed over.
func list[T any](b *Backend, call string, names iter.Seq2[string, error],
	read func(name string) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		_, err := b.cluster()
		if err != nil {
			names = func(yield func(string, error) bool) { yield("", err) }
		}
		for name, failure := range names {
			var found []T
			if err = redisclient.ReplyError(failure); err == nil {
				found, err = read(name)
			}
			if redisclient.About(err) == redisclient.Value {
				err = nil
			}
			for _, t := range found {
				if !yield(t, nil) {
					b.stats.Count(nil)
					return
				}
			}
			if err != nil {
				break
			}
		}
		if err := b.after(call, "", err); err != nil {
			yield(*new(T), err)
		}
	}
}

// glob quotes what has a meaning in patterns of Redis.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// listHash returns the windows of a hash.
func (b *Backend) listHash(ctx context.Context, name string) (all []window.Listed, err error) {
	tag := b.tagOf(name)
	there, err := b.ofAll(ctx, peek, name, nil)
	for i := range there {
		w, _, err := there[i].window()
		w.Refused, w.RetryAfter = false, 0 // nothing was to fit
		if err == nil && w != (window.Window{}) {
			all = append(all, window.Listed{Key: tag[2:], Digest: tag[0] == 'h', Limit: there[i].limit, Window: w})
		}
	}
	return all, err
}

//go:embed lua/fields.lua
var fieldsLua string

// fieldsScript returns what a hash has.
var fieldsScript = newScript(fieldsLua)

// ofAll asks the same of all limits of which a hash has a state, or of those with some scales, in one step. Their Max
// and Burst are those last used. Fields of others are passed over.
func (b *Backend) ofAll(ctx context.Context, v verb, name string, scales []time.Duration) ([]op, error) {
	text, err := b.evalAlone(ctx, fieldsScript, []string{name})
	var all []op
	for line := range strings.Lines(text) {
		l, ok := readField(strings.TrimSuffix(line, "\n"))
		if ok && (len(scales) == 0 || slices.Contains(scales, l.Scale)) {
			all = append(all, op{verb: v, name: name, limit: l})
		}
	}
	if len(all) > 0 {
		err = b.run(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readField reads a line of fieldsScript. It reports whether the field may be that of a limit.
func readField(line string) (l window.Limit, ok bool) {
	field, name, _ := strings.Cut(line, ":")
	var letter byte
	var capacity uint64
	var scale int64
	if _, err := fmt.Sscanf(field, "%d %d %c%d", &l.Max, &capacity, &letter, &scale); err != nil {
		return l, false
	}
	l.Name = name
	l.Algorithm = window.Algorithm(max(0, bytes.IndexByte(letters[:], letter)))
	if l.Algorithm == window.CalendarWindow {
		return l, readCalendar(field, &l)
	}
	l.Scale = time.Duration(scale) * time.Microsecond
	if l.Algorithm == window.TokenBucket && capacity != l.Max {
		l.Burst = capacity
	}
	return l, l.Algorithm != 0 && scale > 0 && scale <= math.MaxInt64/int64(time.Microsecond)
}

//go:embed lua/holders.lua
var holdersLua string

var holdersScript = newScript(holdersLua)

// ListPlaces implements [window.Backend]. It asks all primaries for the names of hashes, also of keys that are named:
// their limits are not known.
func (b *Backend) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	tags := map[string]bool{}
	for _, key := range keys {
		tags[string(appendTag(nil, key))] = true
	}
	read := func(name string) ([]window.ListedPlaces, error) {
		if len(tags) > 0 && !tags[b.tagOf(name)] {
			return nil, nil
		}
		return b.listPlaces(ctx, name)
	}
	return list(b, "list places", b.client.Scan(ctx, glob.Replace(b.prefix)+"{[kh]:*}"+flights+"*"), read)
}

// listPlaces returns the places of a hash, if there are any.
func (b *Backend) listPlaces(ctx context.Context, name string) ([]window.ListedPlaces, error) {
	text, err := b.evalAlone(ctx, holdersScript, []string{name}, b.time())
	if err != nil || text == "" {
		return nil, err
	}
	tag := b.tagOf(name)
	p := window.ListedPlaces{Key: tag[2:], Digest: tag[0] == 'h', Name: name[len(b.prefix+"{"+tag+"}"+flights):]}
	for line := range strings.Lines(text) {
		var h window.Holder
		var micros int64
		if _, err := fmt.Sscan(line, &h.Process, &h.Held, &h.Waiting, &micros); err != nil {
			return nil, fmt.Errorf("%w: the script returned %.64q", window.ErrUnavailable, line)
		}
		h.LeaseEnds = time.Duration(micros) * time.Microsecond
		p.Used += h.Held
		p.Waiting += h.Waiting
		p.ByProcess = append(p.ByProcess, h)
	}
	slices.SortFunc(p.ByProcess, func(x, y window.Holder) int { return cmp.Compare(x.Process, y.Process) })
	return []window.ListedPlaces{p}, nil
}
