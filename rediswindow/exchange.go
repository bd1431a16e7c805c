package rediswindow

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/redisreply"
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
	names := b.flightNames(claims)
	defer b.wakes.answered(b.wakes.expect(b, claims, names), places)
	if !cluster {
		err = b.exchangeTogether(ctx, claims, names, places, false)
		// Something else may be stored in one of the hashes, or the server may be a proxy to several.
		cluster = redisreply.HasCode(err, "CROSSSLOT")
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
				places[i] = window.Places{Err: &api.CallError{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
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
			places[i] = window.Places{Err: &api.CallError{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
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
	keys := append(append(make([]string, 0, 1+len(names)), b.birthName(claims[0].Key, cluster)), names...)
	args := append(make([]string, 0, 8), at, strconv.FormatFloat(grace, 'f', 0, 64), b.prefix+"wake:", b.wakes.channel(b))
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
	return readPlaces(response, claims, places)
}

// appendClaims appends the arguments of claims of one process, or of those of none.
func appendClaims(args []string, claims []window.Claim) []string {
	count := strconv.Itoa(len(claims))
	if claims[0].Process == "" {
		return append(args, "", count)
	}
	var text strings.Builder
	var b [256]byte
	text.Grow(64 * len(claims))
	for i := range claims {
		text.Write(appendClaim(b[:0], &claims[i]))
	}
	return append(args, "p"+claims[0].Process, count, text.String())
}

// appendClaim appends a claim.
func appendClaim(b []byte, c *window.Claim) []byte {
	for _, n := range [...]uint64{c.Seq, uint64(c.Lease.Microseconds()), c.Held, c.HeldMax} {
		b = appendFloat(b, float64(n))
	}
	strict := byte(0)
	if c.Strict {
		strict = 1
	}
	b = append(b, strict, 0, 0)
	at, runs := len(b)-2, uint16(0)
	for wants := c.Wants; len(wants) > 0; runs++ {
		n := equalWants(wants)
		equal := float64(n)
		if wants[0].Wait {
			equal = -equal
		}
		b = appendFloat(appendFloat(appendFloat(b, equal), float64(wants[0].N)), float64(wants[0].Max))
		wants = wants[n:]
	}
	binary.LittleEndian.PutUint16(b[at:], runs)
	return b
}

// equalWants returns how many wants at the beginning are equal, at most as many as fit a byte.
func equalWants(wants []window.Want) (n int) {
	for n < min(len(wants), 255) && wants[n] == wants[0] {
		n++
	}
	return n
}

// What the script says of a claim, if it says more than 0. See there for the response.
const (
	claimLate = 1 + iota
	claimLost
	claimFailed
	claimAsks
	claimForgotten
	claimWaits = 8 // added if wants wait
)

// answers is what is left of a response.
type answers struct {
	now, birth    float64
	bytes, values string
	tokens        []uint64 // 0 for each want
	bad           bool
}

// readPlaces reads the answers to claims.
func readPlaces(response string, claims []window.Claim, places []window.Places) error {
	a, wants := answers{values: response}, 0
	for i := range claims {
		wants += len(claims[i].Wants)
	}
	a.now, a.birth, a.tokens = a.number(), a.number(), make([]uint64, wants)
	size := max(0, min(int(a.number()), len(a.values)))
	a.bytes, a.values = a.values[:size], a.values[size:]
	for i := range claims {
		a.read(&claims[i], &places[i])
	}
	if a.bad || a.bytes != "" || a.values != "" {
		return fmt.Errorf("script returned %q", response)
	}
	return nil
}

// read reads the answer to a claim.
func (a *answers) read(c *window.Claim, p *window.Places) {
	byte := a.byte()
	said := byte &^ claimWaits
	*p = window.Places{Late: said == claimLate, Lost: said == claimLost, Forgotten: said == claimForgotten, DataSet: uint64(a.birth)}
	switch said {
	case claimFailed:
		p.Err = errRepeat
		return
	case claimLate, claimAsks:
		p.Used, p.Waiting = uint64(a.number()), uint64(a.number())
		return
	}
	var state [6]float64
	for i := range state {
		state[i] = a.number()
	}
	sum, token, first := state[0], state[2], state[3]
	p.Used = uint64(sum)
	if byte != said {
		p.Waiting = uint64(a.number())
	}
	if sum > 0 {
		p.Next = time.Duration(first-a.now) * time.Microsecond
	}
	if c.Strict {
		p.Grace = max(0, time.Duration(a.birth+float64(c.Lease.Microseconds())-a.now)*time.Microsecond)
	}
	a.readTokens(c, p, uint64(token))
}

// readTokens reads which wants of a claim are granted. Last is the token of the last one.
func (a *answers) readTokens(c *window.Claim, p *window.Places, last uint64) {
	tokens, granted := a.tokens[:len(c.Wants):len(c.Wants)], uint64(0)
	a.tokens = a.tokens[len(tokens):]
	for at := 0; at < len(tokens); {
		n := equalWants(c.Wants[at:])
		fit := int(a.byte())
		a.bad = a.bad || fit > n
		for i := range min(fit, n) {
			granted++
			tokens[at+i] = granted
		}
		at += n
	}
	if granted == 0 {
		return
	}
	for i, t := range tokens {
		if t > 0 {
			tokens[i] = last - granted + t
		}
	}
	p.Tokens = tokens
}

// byte reads a byte.
func (a *answers) byte() (c byte) {
	if a.bad = a.bad || a.bytes == ""; !a.bad {
		c, a.bytes = a.bytes[0], a.bytes[1:]
	}
	return c
}

// number reads a number.
func (a *answers) number() (f float64) {
	if a.bad = a.bad || len(a.values) < 8; !a.bad {
		f, a.values = float(a.values), a.values[8:]
	}
	return f
}

// flightNames returns the names of the hashes of claims.
func (b *Backend) flightNames(claims []window.Claim) []string {
	var text strings.Builder
	var name [256]byte
	var ends [maxExchanges]int
	text.Grow(48 * len(claims))
	for i := range claims {
		text.Write(b.appendFlightName(name[:0], &claims[i]))
		ends[i] = text.Len()
	}
	names, begin := make([]string, len(claims)), 0
	for i := range names {
		names[i] = text.String()[begin:ends[i]]
		begin = ends[i]
	}
	return names
}

// appendFlightName appends the name of the hash of the places of a key and name. It differs from the names of windows.
func (b *Backend) appendFlightName(to []byte, c *window.Claim) []byte {
	to = appendTag(append(append(to, b.prefix...), '{'), c.Key)
	return append(append(append(to, '}'), flights...), c.Name...)
}

// flights separates the tag from the name of the limit, in the name of a hash of places. It has the version of what is stored.
const flights = ":f1:"

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
