package rediswindow

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

// Take implements [window.Backend] with one script.
func (b *Backend) Take(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if _, err = b.check(&l); err == nil {
		w, err = b.take(ctx, &window.Take{Key: key, Limit: l, N: n})
	}
	return w, b.failed("take", key, err)
}

// Peek implements [window.Backend].
func (b *Backend) Peek(ctx context.Context, key string, l window.Limit, n uint64) (w window.Window, err error) {
	if _, err = b.check(&l); err == nil {
		w, err = b.peek(ctx, &window.Take{Key: key, Limit: l, N: n})
	}
	return w, b.failed("peek", key, err)
}

// TakeAll implements [window.Backend]. On one server it is one script, whatever the algorithms are. In a
// cluster it is one script for each key, in the order of the keys: if one of them refuses, the others give
// back, even after ctx has ended. Until then, other callers may be refused what was taken. If a script
// fails, what it has taken stays counted until the windows end.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	if len(takes) == 0 {
		return true, nil
	}
	for i := range takes {
		if _, err = b.check(&takes[i].Limit); err != nil {
			return false, b.failed("take", takes[i].Key, err)
		}
	}
	merged, index := limits.Merge(takes)
	if index == nil {
		granted, err = b.takeAll(ctx, takes, windows)
	} else {
		left := make([]window.Window, len(merged))
		granted, err = b.takeAll(ctx, merged, left)
		limits.Spread(windows, index, left)
	}
	return granted, b.failed("take", takes[0].Key, err)
}

// GiveBack implements [window.Backend].
func (b *Backend) GiveBack(ctx context.Context, key string, l window.Limit, n uint64, id int64) (ok bool, err error) {
	if _, err = b.check(&l); err == nil {
		ok, err = b.giveBack(ctx, &window.Take{Key: key, Limit: l, N: n}, id, false)
	}
	return ok, b.failed("give back", key, err)
}

// newID returns a random ID of windows. So two windows of a key and limit hardly have the same one,
// whoever opens them.
func newID() string { return strconv.FormatInt(1+rand.Int64N(1<<43), 10) }

// take makes a take.
func (b *Backend) take(ctx context.Context, t *window.Take) (window.Window, error) {
	takes, windows := [1]window.Take{*t}, [1]window.Window{}
	_, err := b.takeGroup(ctx, takes[:], windows[:], []int{0}, newID())
	return windows[0], err
}

// peek returns what a take would find.
func (b *Backend) peek(ctx context.Context, t *window.Take) (window.Window, error) {
	takes, windows := [1]window.Take{*t}, [1]window.Window{}
	_, err := b.takeGroup(ctx, takes[:], windows[:], []int{0}, "")
	return windows[0], err
}

// takeAll makes takes of different counts, all or none.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	cluster, err := b.cluster()
	if err != nil {
		return false, err
	}
	id, groups := newID(), groupsOf(takes, cluster)
	for g, group := range groups {
		granted, err := b.takeGroup(ctx, takes, windows, group, id)
		if granted && err == nil {
			continue
		}
		b.undo(ctx, takes, windows, slices.Concat(groups[:g]...), id)
		if err != nil {
			return false, err
		}
		return false, b.peekOthers(ctx, takes, windows, group)
	}
	return true, nil
}

// groupsOf returns the indices of takes, in groups that a script can access: in a cluster those of a
// key, because while a slot moves to another node, a script may have only one key. They are in the order
// of the keys, so that of several callers one gets what it needs.
func groupsOf(takes []window.Take, cluster bool) [][]int {
	if len(takes) == 1 || !cluster {
		all := make([]int, len(takes))
		for i := range all {
			all[i] = i
		}
		return [][]int{all}
	}
	byKey := map[string][]int{}
	for i := range takes {
		byKey[takes[i].Key] = append(byKey[takes[i].Key], i)
	}
	groups := make([][]int, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		groups = append(groups, byKey[key])
	}
	return groups
}

// takeGroup makes the takes of a group, all or none. The windows that open have the ID; without one, it only
// returns what the takes would find.
func (b *Backend) takeGroup(ctx context.Context, takes []window.Take, windows []window.Window, group []int, id string) (bool, error) {
	now, err := b.time()
	if err != nil {
		return false, err
	}
	made, grace := id != "", ""
	if made {
		grace = b.grace()
	}
	keys := make([]string, 0, len(group))
	args := append(make([]string, 0, 3+6*len(group)), "", now, grace)
	for _, i := range group {
		t := &takes[i]
		keys = append(keys, b.name(t.Key))
		args = append(args, fieldOf(&t.Limit))
		args = algorithms[t.Limit.Algorithm].appendArgs(args, &call{Take: t, id: id})
	}
	var response []int64
	if first := &takes[group[0]]; made && len(group) == 1 && first.N > 0 && algorithms[first.Limit.Algorithm].fast != nil {
		args[0] = strconv.FormatInt(first.Limit.Scale.Microseconds(), 10)
		response, err = b.run(ctx, algorithms[first.Limit.Algorithm].fast, keys, args)
	}
	if err == nil && (len(response) == 0 || response[0] == 2) {
		response, err = b.run(ctx, takeScript, keys, args[1:])
	}
	if err != nil {
		return false, err
	}
	const each = 1 + stateSize
	if len(response) != 2+each*len(group) {
		return false, fmt.Errorf("script returned %v", response)
	}
	// Only the script decides. A take that was refused because of another one is not Refused itself.
	granted, at := response[0] == 1, response[1]
	for j, i := range group {
		t, v := &takes[i], response[2+each*j:]
		windows[i] = decided(t, v[0] == 1, made && granted && t.N > 0, at, v[1:each])
	}
	return granted, nil
}

// undo gives back what some takes were granted, and removes the windows that they have opened if these
// have nothing else. If ctx ends, it returns, and goes on. What can't be given back stays counted.
func (b *Backend) undo(ctx context.Context, takes []window.Take, windows []window.Window, granted []int, id string) {
	var all sync.WaitGroup
	for _, i := range granted {
		t, w := takes[i], windows[i].ID
		if t.N == 0 {
			continue
		}
		all.Go(func() {
			_, _ = b.giveBack(context.WithoutCancel(ctx), &t, w, strconv.FormatInt(w, 10) == id)
		})
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// peekOthers looks at the windows of all takes that are not in the group that has refused.
func (b *Backend) peekOthers(ctx context.Context, takes []window.Take, windows []window.Window, refused []int) (err error) {
	for i := range takes {
		if !slices.Contains(refused, i) {
			if windows[i], err = b.peek(ctx, &takes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack gives the N of a take back. If remove is true, a window that is empty then is removed.
func (b *Backend) giveBack(ctx context.Context, t *window.Take, id int64, remove bool) (bool, error) {
	now, err := b.time()
	if err != nil {
		return false, err
	}
	place, epoch := int64(0), id
	if t.Limit.Algorithm.Rolling() {
		place, epoch = placeOf(id)
	}
	if id <= 0 || epoch < 0 {
		return false, nil
	}
	empty := "0"
	if remove {
		empty = "1"
	}
	args := []string{now, b.grace(), fieldOf(&t.Limit), strconv.FormatInt(epoch, 10), strconv.FormatInt(place, 10),
		strconv.FormatUint(min(t.N, MaxCount), 10), empty}
	response, err := b.run(ctx, giveBackScript, []string{b.name(t.Key)}, args)
	return len(response) == 1 && response[0] == 1, err
}

// slotOf returns the slot of a hash tag in a cluster: its CRC-16 (polynomial 1021) modulo 16384.
func slotOf(tag string) uint16 {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
	}
	return crc % 16384
}
