package rediswindow

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

//go:embed lua/exchange.lua
var exchangeLua string

var exchangeScript = newScript(exchangeLua)

// maxExchanges is how many claims share a script.
const maxExchanges = 128

// Exchange implements [window.Backend]. All claims share a script, up to 128; in a cluster each has one. See the
// package's documentation for what Redis can lose.
func (b *Backend) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	if len(claims) == 0 {
		return nil // nothing is asked
	}
	err := ctx.Err()
	for done := 0; done < len(claims) && err == nil; done += maxExchanges {
		end := min(done+maxExchanges, len(claims))
		err = b.exchange(ctx, claims[done:end], places[done:end])
	}
	b.stats.Count(cmp.Or(err, firstError(places)))
	return failed("exchange", "", err)
}

// firstError returns the first error of places that says that the store is away, otherwise the first one.
func firstError(places []window.Places) (first error) {
	for i := range places {
		err := places[i].Err
		if errors.Is(err, window.ErrUnavailable) {
			return err
		}
		first = cmp.Or(first, err)
	}
	return first
}

// errNotMade is the error of a claim until it is made.
var errNotMade = errors.New("the claim is not made")

// exchange makes claims: unless the client is one of a cluster, in one script, and then those that it has not made in a
// script each, which returns their errors.
func (b *Backend) exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	cluster, err := b.cluster()
	if err != nil {
		return err
	}
	names := make([]string, len(claims))
	for i := range claims {
		names[i] = b.nameWith(claims[i].Key, flights, claims[i].Name)
		places[i] = window.Places{Err: errNotMade}
	}
	b.wakes.note(claims, names, places)       // one that waits may be woken before the response is there
	defer b.wakes.note(claims, names, places) // places then says who waits
	if !cluster {
		err := b.exchangeTogether(ctx, claims, names, places, false)
		if err != nil && !redisclient.AboutSome(err) {
			return err
		}
		cluster = redisclient.About(err) == redisclient.Slots // a proxy to several servers
	}
	var all sync.WaitGroup
	for i := range claims {
		if places[i].Err == nil {
			continue
		}
		all.Go(func() {
			if err := b.exchangeTogether(ctx, claims[i:i+1], names[i:i+1], places[i:i+1], cluster); err != nil {
				places[i] = window.Places{Err: failed("exchange", claims[i].Key, err)}
			}
		})
	}
	all.Wait()
	return nil
}

// exchangeTogether makes claims on the hashes of these names with one script.
func (b *Backend) exchangeTogether(ctx context.Context, claims []window.Claim, names []string,
	places []window.Places, cluster bool) error {
	keys := append(append(make([]string, 0, 1+len(names)), b.birthName(claims[0].Key, cluster)), names...)
	args := append(make([]string, 0, 3+2*len(claims)), b.time(), b.wakes.prefix, b.wakes.id)
	for i := range claims {
		var text [256]byte
		args = append(args, claims[i].Process, string(appendClaim(text[:0], &claims[i])))
	}
	response, err := b.evalAlone(ctx, exchangeScript, keys, args...)
	if err != nil {
		return err
	}
	return readPlaces(response, claims, places)
}

// appendClaim appends a claim.
func appendClaim(b []byte, c *window.Claim) []byte {
	for _, f := range [...]float64{float64(c.Seq), float64(c.Lease.Microseconds()), float64(c.Held),
		float64(c.HeldMax), number[c.Strict]} {
		b = appendFloat(b, f)
	}
	for run := range runs(c.Wants) {
		w := &run[0]
		b = appendFloat(appendFloat(b, float64(len(run))), float64(w.N))
		b = appendFloat(appendFloat(b, float64(w.Max)), number[w.Wait])
	}
	return b
}

// runs returns the runs of equal wants, each of which the script decides in one step.
func runs(wants []window.Want) iter.Seq[[]window.Want] {
	return func(yield func([]window.Want) bool) {
		for begin, end := 0, 0; end < len(wants); begin = end {
			for end < len(wants) && wants[end] == wants[begin] {
				end++
			}
			if !yield(wants[begin:end]) {
				return
			}
		}
	}
}

// number has what the script gets for a condition.
var number = map[bool]float64{true: 1}

// What the script says of a claim. See there for the response.
const (
	claimLate = 1 + iota
	claimLost
	claimFailed
	claimForgotten
)

// readPlaces reads the answers to claims.
func readPlaces(response string, claims []window.Claim, places []window.Places) error {
	numbers := 1
	for i := range claims {
		numbers += 5
		for range runs(claims[i].Wants) {
			numbers += 2
		}
	}
	if len(response) != 8*numbers {
		return fmt.Errorf("%w: the script returned %d bytes for %d claims", window.ErrUnavailable, len(response), len(claims))
	}
	next := func() float64 {
		f := float(response)
		response = response[8:]
		return f
	}
	birth := uint64(next())
	for i := range claims {
		said := next()
		p := window.Places{
			Late: said == claimLate, Lost: said == claimLost, Forgotten: said == claimForgotten, DataSet: birth,
			Used: uint64(next()), Waiting: uint64(next()), Next: micros(next()), Grace: micros(next()),
		}
		at := 0
		for run := range runs(claims[i].Wants) {
			granted, token := int(next()), uint64(next())
			if granted > 0 && p.Tokens == nil {
				p.Tokens = make([]uint64, len(claims[i].Wants))
			}
			for n := range min(granted, len(run)) {
				p.Tokens[at+n] = token + uint64(n)
			}
			at += len(run)
		}
		if said == claimFailed {
			p.Err = errNotMade
		}
		places[i] = p
	}
	return nil
}

// flights separates the tag from the name of the limit, in the name of the hash of the places of a key and name. It has
// the version of what is stored, and differs from that of windows.
const flights = ":f1:"

// birthName returns the name of the birth, which says when the data set was created: in a cluster one of the slot of
// the key, otherwise one. Its hash tag is none of a key.
func (b *Backend) birthName(key string, cluster bool) string {
	if !cluster {
		return b.prefix + "{b}:born1"
	}
	return b.prefix + "{" + slotTags()[slotOfKey(key)] + "}:born1"
}
