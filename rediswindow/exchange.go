package rediswindow

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/callerr"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

//go:embed lua/exchange.lua
var exchangeLua string

var exchangeScript = newScript(exchangeLua)

const (
	// maxExchanges is how many claims share a script.
	maxExchanges = 128
	// maxAlone is how many scripts of one claim a call has in flight.
	maxAlone = 32
)

// Exchange implements [window.Backend]. All claims share a request, up to 128; in a cluster each has one. See the
// package's documentation for what Redis can lose.
func (b *Backend) Exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	err := limits.CheckClaims(claims, places)
	for len(claims) > 0 && err == nil {
		n := min(len(claims), maxExchanges)
		err = b.exchange(ctx, claims[:n], places[:n])
		claims, places = claims[n:], places[n:]
	}
	return b.after("exchange", "", err)
}

func (b *Backend) exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	cluster, err := b.cluster()
	if err != nil {
		return err
	}
	names := make([]string, len(claims))
	for i := range claims {
		names[i] = b.flightName(&claims[i])
	}
	b.wakes.expect(b, claims, names)
	if !cluster {
		err = b.exchangeTogether(ctx, claims, names, places, false)
		// Something else may be stored in one of the hashes, or the server may be a proxy to several.
		cluster = err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT")
		if err == nil {
			b.exchangeFailed(ctx, claims, names, places)
			return nil
		}
		if len(claims) == 1 && !cluster || ctx.Err() != nil || !isReply(err) {
			return err
		}
	}
	if len(claims) == 1 {
		return b.exchangeTogether(ctx, claims, names, places, cluster)
	}
	var all sync.WaitGroup
	room := make(chan struct{}, maxAlone)
	for i := range claims {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := b.exchangeTogether(ctx, claims[i:i+1], names[i:i+1], places[i:i+1], cluster); err != nil {
				places[i] = window.Places{Err: &callerr.Error{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// errRepeat marks a claim that has failed in a script with others, and is to be made again, alone.
var errRepeat = errors.New("the claim has failed")

// exchangeFailed makes claims that have failed in a script with others again, alone, for their errors.
func (b *Backend) exchangeFailed(ctx context.Context, claims []window.Claim, names []string, places []window.Places) {
	for i := range places {
		if places[i].Err != errRepeat {
			continue
		}
		if err := b.exchangeTogether(ctx, claims[i:i+1], names[i:i+1], places[i:i+1], false); err != nil {
			places[i] = window.Places{Err: &callerr.Error{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
		}
	}
}

// isReply reports whether an error is a reply of a server that counts.
func isReply(err error) bool {
	code, _, ok := strings.Cut(err.Error(), " ")
	return ok && code == strings.ToUpper(code) && !strings.HasSuffix(code, ":")
}

// exchangeTogether makes claims on the hashes of these names with one script.
func (b *Backend) exchangeTogether(ctx context.Context, claims []window.Claim, names []string, places []window.Places, cluster bool) error {
	now, grace, err := b.time()
	if err != nil {
		return err
	}
	at := ""
	if b.now != nil {
		at = strconv.FormatFloat(now, 'f', 0, 64)
	}
	oldSlots := "0"
	if cluster && b.now == nil {
		oldSlots = "1"
	}
	keys := append(append(make([]string, 0, 1+len(names)), b.birthName(claims[0].Key, cluster)), names...)
	args := append(make([]string, 0, 8), at, oldSlots, strconv.FormatFloat(grace, 'f', 0, 64), b.prefix+"wake:", b.wakes.channel(b))
	for rest := claims; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Process == rest[0].Process {
			n++
		}
		args = appendClaims(args, rest[:n])
		rest = rest[n:]
	}
	response, err := b.requestAlone(ctx, claims[0].Key, func(ctx context.Context) (string, error) { return b.eval(ctx, exchangeScript, keys, args) })
	if err != nil {
		return err
	}
	for i := range claims {
		if response, err = readPlaces(response, &claims[i], &places[i]); err != nil {
			return err
		}
	}
	return nil
}

// appendClaims appends the arguments of claims of one process, or of those of none.
func appendClaims(args []string, claims []window.Claim) []string {
	count := strconv.Itoa(len(claims))
	if claims[0].Process == "" {
		return append(args, "", count)
	}
	b := make([]byte, 0, 9*8*len(claims))
	for i := range claims {
		b = appendClaim(b, &claims[i])
	}
	return append(args, "p"+claims[0].Process, count, string(b))
}

// appendClaim appends a claim.
func appendClaim(b []byte, c *window.Claim) []byte {
	for _, n := range [...]uint64{c.Seq, uint64(c.Lease.Microseconds()), c.Held, c.HeldMax, 0} {
		b = appendFloat(b, float64(n))
	}
	runsAt, runs := len(b)-8, 0.0
	for wants := c.Wants; len(wants) > 0; runs++ {
		n, wait := equalWants(wants), 0.0
		if wants[0].Wait {
			wait = 1
		}
		for _, f := range [...]float64{float64(n), float64(wants[0].N), float64(wants[0].Max), wait} {
			b = appendFloat(b, f)
		}
		wants = wants[n:]
	}
	binary.LittleEndian.PutUint64(b[runsAt:], math.Float64bits(runs))
	return b
}

// equalWants returns how many wants at the beginning are equal.
func equalWants(wants []window.Want) (n int) {
	for n < len(wants) && wants[n] == wants[0] {
		n++
	}
	return n
}

// readPlaces reads the answer to a claim, and returns what is after it.
func readPlaces(response string, c *window.Claim, p *window.Places) (rest string, err error) {
	var head [5]int64
	for i := range head {
		if head[i], response, err = readNumber(response); err != nil {
			return "", err
		}
	}
	*p = window.Places{
		Late: head[0] == 1, Lost: head[0] == 2, Used: uint64(head[1]), Waiting: uint64(head[2]),
		Next: time.Duration(head[3]) * time.Microsecond,
	}
	switch {
	case head[0] == 3:
		*p = window.Places{Err: errRepeat}
		return response, nil
	case p.Late:
		return response, nil
	}
	token := uint64(head[4])
	for at := 0; at < len(c.Wants); {
		n := equalWants(c.Wants[at:])
		var granted int64
		if granted, response, err = readNumber(response); err != nil || granted < 0 || granted > int64(n) {
			return "", cmp.Or(err, fmt.Errorf("script granted %d of %d", granted, n))
		}
		if granted > 0 && p.Tokens == nil {
			p.Tokens = make([]uint64, len(c.Wants))
		}
		for i := range granted {
			p.Tokens[at+int(i)] = token
			token++
		}
		at += n
	}
	return response, nil
}

// readNumber reads a number of a response, and returns what is after it.
func readNumber(response string) (n int64, rest string, err error) {
	if len(response) < 8 {
		return 0, "", fmt.Errorf("script returned %q", response)
	}
	return int64(float(response)), response[8:], nil
}

// flightName returns the name of the hash of the places of a key and name. It differs from the names of windows.
func (b *Backend) flightName(c *window.Claim) string {
	name := appendTag(append(append(make([]byte, 0, 128), b.prefix...), '{'), c.Key)
	return string(append(append(name, "}:f1:"...), c.Name...))
}

// birthName returns the name of the birth, which says when the data set was created: in a cluster one of the slot of
// the key, otherwise one. Its hash tag is none of a key.
func (b *Backend) birthName(key string, cluster bool) string {
	if !cluster {
		return b.prefix + "{b}:born1"
	}
	return b.prefix + "{" + slotTags()[slotOfKey(key)] + "}:born1"
}

// slotTags returns a hash tag of each slot of a cluster.
var slotTags = sync.OnceValue(func() []string {
	tags := make([]string, slots)
	for i, missing := 0, slots; missing > 0; i++ {
		tag := "b:" + strconv.Itoa(i)
		if slot := slotOf([]byte(tag)); tags[slot] == "" {
			tags[slot] = tag
			missing--
		}
	}
	return tags
})
