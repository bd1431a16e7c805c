package rediswindow

import (
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
	return b.failed("exchange", "", err)
}

func (b *Backend) exchange(ctx context.Context, claims []window.Claim, places []window.Places) error {
	cluster, err := b.cluster()
	if err != nil {
		return err
	}
	b.wakes.expect(b, claims)
	if !cluster {
		err = b.exchangeTogether(ctx, claims, places, false)
		// Something else may be stored in one of the hashes, or the server may be a proxy to several.
		cluster = err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT")
		if err == nil {
			b.exchangeFailed(ctx, claims, places)
			return nil
		}
		if len(claims) == 1 && !cluster || ctx.Err() != nil || !isReply(err) {
			return err
		}
	}
	if len(claims) == 1 {
		return b.exchangeTogether(ctx, claims, places, cluster)
	}
	var all sync.WaitGroup
	room := make(chan struct{}, maxAlone)
	for i := range claims {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := b.exchangeTogether(ctx, claims[i:i+1], places[i:i+1], cluster); err != nil {
				places[i] = window.Places{Err: &callerr.Error{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// errAlone marks a claim that has failed in a script with others.
var errAlone = errors.New("the claim has failed")

// exchangeFailed makes claims that have failed in a script with others again, alone, for their errors.
func (b *Backend) exchangeFailed(ctx context.Context, claims []window.Claim, places []window.Places) {
	for i := range places {
		if places[i].Err != errAlone {
			continue
		}
		if err := b.exchangeTogether(ctx, claims[i:i+1], places[i:i+1], false); err != nil {
			places[i] = window.Places{Err: &callerr.Error{Package: "rediswindow", Call: "exchange", Key: claims[i].Key, Err: err}}
		}
	}
}

// isReply reports whether an error is a reply of a server that counts.
func isReply(err error) bool {
	code, _, ok := strings.Cut(err.Error(), " ")
	return ok && code == strings.ToUpper(code) && !strings.HasSuffix(code, ":")
}

// exchangeTogether makes claims with one script.
func (b *Backend) exchangeTogether(ctx context.Context, claims []window.Claim, places []window.Places, cluster bool) error {
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
	keys := make([]string, 1, 1+len(claims))
	keys[0] = b.birthName(claims[0].Key, cluster)
	args := append(make([]string, 0, 5+2*len(claims)), at, oldSlots, strconv.FormatFloat(grace, 'f', 0, 64), b.prefix+"wake:", b.wakes.channel(b))
	for i := range claims {
		keys = append(keys, b.flightName(&claims[i]))
		args = appendClaim(args, &claims[i])
	}
	response, err := b.run(ctx, claims[0].Key, func(ctx context.Context) (string, error) { return b.eval(ctx, exchangeScript, keys, args) })
	if err != nil {
		return err
	}
	numbers := make([]int64, len(response)/8)
	for i := range numbers {
		numbers[i] = int64(float(response[8*i:]))
	}
	for i := range claims {
		if numbers, err = readPlaces(numbers, &claims[i], &places[i]); err != nil {
			return err
		}
	}
	return nil
}

// appendClaim appends the arguments of a claim.
func appendClaim(args []string, c *window.Claim) []string {
	if c.Process == "" {
		return append(args, "")
	}
	b := make([]byte, 0, 9*8)
	number := func(n uint64) { b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n))) }
	for _, n := range [...]uint64{c.Seq, uint64(c.Lease.Microseconds()), c.Held, c.HeldMax, 0} {
		number(n)
	}
	const runsAt = 4 * 8
	runs := 0
	for i := 0; i < len(c.Wants); runs++ {
		first, wait := i, uint64(0)
		for i < len(c.Wants) && c.Wants[i] == c.Wants[first] {
			i++
		}
		w := c.Wants[first]
		if w.Wait {
			wait = 1
		}
		for _, n := range [...]uint64{uint64(i - first), w.N, w.Max, wait} {
			number(n)
		}
	}
	binary.LittleEndian.PutUint64(b[runsAt:], math.Float64bits(float64(runs)))
	return append(args, c.Process, string(b))
}

// readPlaces reads the answer to a claim, and returns the numbers after it.
func readPlaces(numbers []int64, c *window.Claim, p *window.Places) ([]int64, error) {
	const head = 6
	if len(numbers) < head || numbers[5] < 0 || numbers[5] > int64(len(c.Wants)) || int64(len(numbers)) < head+numbers[5] {
		return nil, fmt.Errorf("script returned %v", numbers)
	}
	*p = window.Places{
		Late: numbers[0] == 1, Lost: numbers[0] == 2, Used: uint64(numbers[1]), Waiting: uint64(numbers[2]),
		Next: time.Duration(numbers[3]) * time.Microsecond,
	}
	if numbers[0] == 3 {
		*p = window.Places{Err: errAlone}
	}
	granted := numbers[head : head+numbers[5]]
	for i, number := range granted {
		if number < 1 || number > int64(len(c.Wants)) {
			return nil, fmt.Errorf("script returned %v", numbers)
		}
		if p.Tokens == nil {
			p.Tokens = make([]uint64, len(c.Wants))
		}
		p.Tokens[number-1] = uint64(numbers[4]) + uint64(i)
	}
	return numbers[head+len(granted):], nil
}

// flightName returns the name of the hash of the places of a key and name. It differs from the names of windows.
func (b *Backend) flightName(c *window.Claim) string {
	return b.prefix + "{" + string(appendTag(nil, c.Key)) + "}:f1:" + c.Name
}

// birthName returns the name of the record of when the data set was created: in a cluster one of the slot of the
// key, otherwise one. Its hash tag is none of a key.
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
