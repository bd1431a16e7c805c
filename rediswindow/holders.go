package rediswindow

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/window"
)

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
			return nil, fmt.Errorf("%w: the script returned %q", window.ErrUnavailable, line)
		}
		h.LeaseEnds = time.Duration(micros) * time.Microsecond
		p.Used += h.Held
		p.Waiting += h.Waiting
		p.ByProcess = append(p.ByProcess, h)
	}
	slices.SortFunc(p.ByProcess, func(x, y window.Holder) int { return cmp.Compare(x.Process, y.Process) })
	return []window.ListedPlaces{p}, nil
}
