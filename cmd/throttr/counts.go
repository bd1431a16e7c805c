package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
)

// limited is the JSON of the limit of a count. What the store does not know is missing.
type limited struct {
	Name      string  `json:"name,omitempty"`
	Algorithm string  `json:"algorithm"`
	Max       uint64  `json:"max,omitempty"`
	Burst     uint64  `json:"burst,omitempty"`
	Scale     float64 `json:"scale_seconds,omitempty"`
	Calendar  string  `json:"calendar,omitempty"`
	Zone      string  `json:"zone,omitempty"`
	StartDay  uint8   `json:"start_day,omitempty"`
}

// counted is the JSON of a count.
type counted struct {
	keyed
	Digest bool `json:"digest,omitempty"`
	limited
	Count  uint64    `json:"count"`
	Used   *float64  `json:"used,omitempty"` // 1: full
	EndsIn float64   `json:"ends_in_seconds"`
	EndsAt time.Time `json:"ends_at,omitzero"`
}

func limitedOf(l throttr.Limit) *limited {
	return &limited{l.Name, l.Algorithm.String(), l.Max, l.Burst, l.Scale.Seconds(), l.Calendar.String(), l.Zone, l.StartDay}
}

func countedOf(l *throttr.Listed) counted {
	c := counted{keyed: keyOf(l.Key), Digest: l.Digest, limited: *limitedOf(l.Limit), Count: l.Window.Count,
		EndsIn: l.Window.Left.Seconds(), EndsAt: l.Window.ExpiresAt.UTC()}
	if used := usage(l); used >= 0 {
		c.Used = &used
	}
	return c
}

// usage returns how much of its limit a count has used: 1 is all, and -1 that its Max is unknown.
func usage(l *throttr.Listed) float64 {
	holds := cmp.Or(l.Limit.Burst, l.Limit.Max)
	if holds == 0 {
		return -1
	}
	return float64(l.Window.Count) / float64(holds)
}

// countColumns are the columns of counts.
var countColumns = []string{"key", "name", "count", "max", "used", "in", "algorithm", "ends in"}

// countFields are the fields of a count.
func countFields(l *throttr.Listed) []any {
	limit, used := unknown, unknown
	if part := usage(l); part >= 0 {
		limit = fmt.Sprint(l.Limit.Max)
		used = fmt.Sprintf("%.0f%%", 100*part)
	}
	if l.Limit.Burst > 0 {
		limit += fmt.Sprintf(" (holds %d)", l.Limit.Burst)
	}
	key := shown(l.Key)
	if l.Digest {
		key += " (digest)"
	}
	return []any{key, dash(l.Limit.Name), l.Window.Count, limit, used, length(l.Limit), l.Limit.Algorithm, left(l.Window.Left)}
}

// length formats the length of a limit's windows.
func length(l throttr.Limit) string {
	if l.Calendar == 0 {
		return formatScale(l.Scale)
	}
	text := l.Calendar.String()
	if l.StartDay > 1 {
		text += fmt.Sprintf(" from day %d", l.StartDay)
	}
	if l.Zone != "" {
		text += " of " + quoted(l.Zone)
	}
	return text
}

// complete gives a count the Max of the flags where the store knows none. It returns false if the flags are of another
// limit.
func (l *limitFlags) complete(c *throttr.Listed) bool {
	if c.Limit.Max == 0 {
		c.Limit.Max = l.Max
	}
	return l.matches(c.Limit)
}

// list is the command list.
func list(e *env, f *flags) action {
	l := limitFlagsOf(f)
	prefix := f.String("prefix", "", "list only keys that begin `so`")
	return with(e, e.open, countColumns, func(ctx context.Context, b *throttr.OpenBackend, keys []string) (bool, error) {
		some := len(keys) == 0
		for c, err := range b.List(ctx, keys...) {
			if err != nil {
				return false, err
			}
			if strings.HasPrefix(c.Key, *prefix) && l.complete(&c) {
				some = true
				e.out.add(countedOf(&c), countFields(&c)...)
			}
		}
		if !some {
			fmt.Fprintln(e.stderr, "throttr list: nothing is counted for this key in this store: it may be stored as a",
				"digest (see throttr help key), or the URL of the store may lack the prefix")
		}
		return some, nil
	})
}

// changed is the JSON of a count that was ended, or to which was given back. Without a limit, there was none.
type changed struct {
	keyed
	Forgotten *bool   `json:"forgotten,omitempty"`
	GivenBack *uint64 `json:"given_back,omitempty"`
	*limited
	Count uint64 `json:"count"` // given back, after it
}

// change prints what was done with the count of a key, or, if that is nil, that there was none.
func (o *output) change(line changed, c *throttr.Listed, result string) {
	if c == nil {
		o.add(line, shown(line.Key), "-", 0, "-", "-", "nothing was counted")
		return
	}
	line.limited = limitedOf(c.Limit)
	line.Count = c.Window.Count
	o.add(line, shown(line.Key), dash(c.Limit.Name), line.Count, length(c.Limit), c.Limit.Algorithm, result)
}

// changeColumns are the columns of counts that were changed.
var changeColumns = []string{"key", "name", "count", "in", "algorithm", "result"}

// forget is the command forget.
func forget(e *env, f *flags) action {
	l := limitFlagsOf(f)
	return forKeys(e, e.open, changeColumns, func(ctx context.Context, b *throttr.OpenBackend, key string) (bool, error) {
		find := l.listed
		if l.Scale > 0 || l.Calendar != 0 {
			find = l.peeked
		}
		all, err := find(ctx, b, key)
		if err != nil {
			return false, err
		}
		some := len(all) > 0
		for _, c := range all {
			if err := b.Reset(ctx, key, c.Limit); err != nil {
				return false, err
			}
			e.out.change(changed{keyed: keyOf(key), Forgotten: &some}, &c, "forgotten")
		}
		if !some {
			e.out.change(changed{keyed: keyOf(key), Forgotten: &some}, nil, "")
		}
		return some, nil
	})
}

// giveBack is the command give-back.
func giveBack(e *env, f *flags) action {
	l := limitFlagsOf(f)
	most := uint64(1)
	number(f, &most, "n", 1, math.MaxUint64, "how `many` to give back to each key (default 1)")
	return forKeys(e, e.open, changeColumns, func(ctx context.Context, b *throttr.OpenBackend, key string) (bool, error) {
		c, err := l.window(ctx, b, key)
		if err != nil {
			return false, err
		}
		n := uint64(0)
		if c == nil {
			e.out.change(changed{keyed: keyOf(key), GivenBack: &n}, nil, "")
			return false, nil
		}
		c.Key = key // it may be listed as a digest
		n, err = giveBackTo(ctx, b, c, most)
		if err == nil {
			e.out.change(changed{keyed: keyOf(key), GivenBack: &n}, c, fmt.Sprintf("%d given back", n))
		}
		return n > 0, err
	})
}

// giveBackTo gives most back to a count, or what it has counted if that is less, and returns how much. The window of
// the count is then the one that is left.
func giveBackTo(ctx context.Context, b throttr.Backend, c *throttr.Listed, most uint64) (n uint64, err error) {
	// What counts 1 returns the ID of the window. The 1 is given back, too. Throttr servers, which store no Max, give
	// back to takes only. Other stores keep the Max of the call, and may be full.
	call := b.Charge
	limit := c.Limit
	if limit.Max == 0 {
		limit = largest(b, limit)
		call = b.Take
	}
	if c.Window, err = call(ctx, c.Key, limit, 1); err != nil {
		return 0, err
	}
	if c.Window.Refused {
		return 0, fmt.Errorf("the count of %s is the largest there is: see throttr help forget", shown(c.Key))
	}
	n = min(most, c.Window.Count-1)
	given, err := b.GiveBack(ctx, c.Key, limit, n+1, c.Window.ID)
	if err != nil || !given {
		return 0, err
	}
	c.Window.Count -= n + 1
	return n, nil
}

// window returns the window of a key to which can be given back, or nil if there is none.
func (l *limitFlags) window(ctx context.Context, b throttr.Backend, key string) (*throttr.Listed, error) {
	all, err := l.listed(ctx, b, key)
	if err == nil && len(all) == 0 && (l.Scale > 0 || l.Calendar != 0) {
		all, err = l.peeked(ctx, b, key) // a server lists no long key
		for i := range all {
			all[i].Limit.Max = 0
		}
	}
	switch {
	case err != nil || len(all) == 0:
		return nil, err
	case len(all) > 1:
		return nil, fmt.Errorf("%s has %d counts: say which by --name, --scale or --calendar, and --algorithm",
			shown(key), len(all))
	case all[0].Limit.Algorithm.Rolling():
		return nil, fmt.Errorf("a %v gets its room back by itself: see throttr help forget", all[0].Limit.Algorithm)
	}
	return &all[0], nil
}

// listed returns the counts of a key that match the flags.
func (l *limitFlags) listed(ctx context.Context, b throttr.Backend, key string) (all []throttr.Listed, err error) {
	for c, err := range b.List(ctx, key) {
		if err != nil {
			return nil, err
		}
		if l.matches(c.Limit) {
			all = append(all, c)
		}
	}
	return all, nil
}

// peeked returns the count of a key for the limit of the flags, if there is one.
func (l *limitFlags) peeked(ctx context.Context, b throttr.Backend, key string) ([]throttr.Listed, error) {
	limit, err := l.limit()
	limit.Max = max(limit.Max, 1)
	c := throttr.Listed{Key: key, Limit: limit}
	if err == nil {
		c.Window, err = b.Peek(ctx, key, limit, 0)
	}
	if err != nil || c.Window.ExpiresAt.IsZero() {
		return nil, err
	}
	return []throttr.Listed{c}, nil
}

// held is the JSON of a process that holds places in flight.
type held struct {
	keyed
	Digest    bool    `json:"digest,omitempty"`
	Name      string  `json:"name,omitempty"`
	Used      uint64  `json:"used"` // by all processes
	Process   string  `json:"process"`
	Held      uint64  `json:"held"`
	Waiting   uint64  `json:"waiting"`
	LeaseEnds float64 `json:"lease_ends_in_seconds"`
}

// holders is the command holders.
func holders(e *env, f *flags) action {
	name := f.String("name", "", "the `name` of the limit")
	columns := []string{"key", "name", "used", "process", "held", "waiting", "lease ends in"}
	return with(e, e.open, columns, func(ctx context.Context, b *throttr.OpenBackend, keys []string) (some bool, err error) {
		for p, err := range b.ListPlaces(ctx, keys...) {
			switch {
			case errors.Is(err, throttr.ErrUnsupported):
				return false, errors.New("places in flight are not kept on this store")
			case err != nil:
				return false, err
			case f.isSet("name") && p.Name != *name:
				continue
			}
			for _, h := range p.ByProcess {
				some = true
				e.out.add(held{keyOf(p.Key), p.Digest, p.Name, p.Used, h.Process, h.Held, h.Waiting, h.LeaseEnds.Seconds()},
					shown(p.Key), dash(p.Name), p.Used, dash(h.Process), h.Held, h.Waiting,
					leftIf(h.LeaseEnds > 0, h.LeaseEnds))
			}
		}
		return some, nil
	})
}
