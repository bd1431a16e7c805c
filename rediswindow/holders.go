package rediswindow

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
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
	text, err := b.readHolders(ctx, key, name)
	if err != nil {
		return nil, b.after("holders", key, err)
	}
	var all []Holder
	for line := range strings.Lines(text) {
		var h Holder
		var micros int64
		if _, err := fmt.Sscan(line, &h.Process, &h.Held, &h.Waiting, &micros); err != nil {
			return nil, b.after("holders", key, fmt.Errorf("script returned %q", line))
		}
		h.LeaseEnds = time.Duration(micros) * time.Microsecond
		all = append(all, h)
	}
	slices.SortFunc(all, func(x, y Holder) int { return cmp.Compare(x.Process, y.Process) })
	return all, b.after("holders", key, nil)
}

func (b *Backend) readHolders(ctx context.Context, key, name string) (string, error) {
	now, _, err := b.time()
	if err != nil {
		return "", err
	}
	at := ""
	if b.now != nil {
		at = strconv.FormatFloat(now, 'f', 0, 64)
	}
	keys := b.flightNames([]window.Claim{{Key: key, Name: name}})
	return b.requestAlone(ctx, key, func(ctx context.Context) (string, error) { return b.eval(ctx, holdersScript, keys, []string{at}) })
}
