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

// Holder is a process that holds places in flight of a key and name, or waits for them.
type Holder = window.Holder

// Holders returns the processes that hold places in flight of a key and name, or wait for them, by their names. It
// reads all that is stored of them, and is for people who look, not for every request.
func (b *Backend) Holders(ctx context.Context, key, name string) ([]Holder, error) {
	all, err := b.holders(ctx, string(b.appendFlightName(nil, &window.Claim{Key: key, Name: name})))
	return all, b.after("holders", key, err)
}

// ListPlaces implements [window.Backend]. It asks all primaries for the names of hashes, also of keys that are named: their
// limits are not known. For a key and the name of a limit, [Backend.Holders] takes one script.
func (b *Backend) ListPlaces(ctx context.Context, keys ...string) iter.Seq2[window.ListedPlaces, error] {
	read := func(hash string) ([]window.ListedPlaces, error) { return b.listPlaces(ctx, hash) }
	return list(b, "list places", b.flightHashes(ctx, keys), read)
}

// flightHashes returns the names of the hashes of places of keys, or of all.
func (b *Backend) flightHashes(ctx context.Context, keys []string) iter.Seq2[string, error] {
	all := b.client.Scan(ctx, glob.Replace(b.prefix)+"{[kh]:*}"+flights+"*")
	if len(keys) == 0 {
		return all
	}
	tags := map[string]bool{}
	for _, key := range keys {
		tags[string(appendTag(nil, key))] = true
	}
	return func(yield func(string, error) bool) {
		for hash, err := range all {
			if (err != nil || tags[b.tagOf(hash)]) && !yield(hash, err) {
				return
			}
		}
	}
}

// listPlaces returns the places of a hash, if there are any.
func (b *Backend) listPlaces(ctx context.Context, hash string) ([]window.ListedPlaces, error) {
	holders, err := b.holders(ctx, hash)
	if err != nil || len(holders) == 0 {
		return nil, err
	}
	tag := b.tagOf(hash)
	p := window.ListedPlaces{Key: tag[2:], Digest: tag[0] == 'h', Name: hash[len(b.prefix+"{"+tag+"}"+flights):], ByProcess: holders}
	for _, h := range holders {
		p.Used += h.Held
		p.Waiting += h.Waiting
	}
	return []window.ListedPlaces{p}, nil
}

// holders returns the processes that hold places of a hash, or wait for them.
func (b *Backend) holders(ctx context.Context, hash string) (all []Holder, err error) {
	at, _, err := b.times()
	if err != nil {
		return nil, err
	}
	n, err := b.nodeOf(hash)
	if err != nil {
		return nil, err
	}
	text, err := b.alone(ctx, n, func(ctx context.Context) (string, error) {
		return b.eval(ctx, holdersScript, []string{hash}, []string{at})
	})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		var h Holder
		var micros int64
		if _, err := fmt.Sscan(line, &h.Process, &h.Held, &h.Waiting, &micros); err != nil {
			return nil, fmt.Errorf("%w: the script returned %q", window.ErrUnavailable, line)
		}
		h.LeaseEnds = time.Duration(micros) * time.Microsecond
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y Holder) int { return cmp.Compare(x.Process, y.Process) })
	return all, nil
}
