package rediswindow

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// Take implements [window.Taker] with one script. Its errors are those of Hit.
func (b *Backend) Take(ctx context.Context, key string, scale time.Duration, limit, n uint64) (window.Window, bool, error) {
	limits := []window.Limit{{Key: key, Scale: scale, Limit: limit, N: n}}
	windows := make([]window.Window, 1)
	granted, err := b.takeAll(ctx, limits, windows)
	return windows[0], granted, failed("take", key, err)
}

// TakeAll implements [window.Taker]. On one server it is one script. In a cluster it is one script
// for each key, in the order of the keys: if one of them refuses, the others give back, even after ctx
// has ended. Until then, other callers may be refused what was taken. If a script fails, what it has
// taken stays counted until the windows end. Its errors are those of Hit.
func (b *Backend) TakeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (bool, error) {
	if len(limits) == 0 {
		return true, nil
	}
	granted, err := b.takeAll(ctx, limits, windows)
	return granted, failed("take", limits[0].Key, err)
}

// GiveBack implements [window.Taker]. Its errors are those of Hit.
func (b *Backend) GiveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64) (bool, error) {
	ok, err := b.giveBack(ctx, key, scale, id, n, false)
	return ok, failed("give back", key, err)
}

// newID returns a random ID of windows. So two windows of a key and scale hardly have the same one,
// whoever opens them.
func newID() string { return strconv.FormatInt(1+rand.Int64N(1<<43), 10) }

func (b *Backend) takeAll(ctx context.Context, limits []window.Limit, windows []window.Window) (bool, error) {
	if err := b.checkTakes(ctx, limits); err != nil {
		return false, err
	}
	id := ""
	if b.rolling == nil {
		id = newID()
	} else if first := sumUp(limits); first != nil {
		return b.takeSums(ctx, limits, windows, first)
	}
	groups := b.groups(limits)
	for g, group := range groups {
		granted, err := b.takeGroup(ctx, limits, windows, group, id)
		if granted && err == nil {
			continue
		}
		b.undo(ctx, limits, windows, slices.Concat(groups[:g]...), id)
		if err != nil {
			return false, err
		}
		return false, b.readOthers(ctx, limits, windows, group)
	}
	return true, nil
}

// checkTakes returns the error of takes that no script needs to find.
func (b *Backend) checkTakes(ctx context.Context, limits []window.Limit) error {
	for i := range limits {
		if _, err := fieldOf(limits[i].Scale); err != nil {
			return err
		}
		if err := b.check("limit", limits[i].Limit); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// groups returns the indices of limits, in groups that a script can access: in a cluster those of a
// key, because while a slot moves to another node, a script may have only one key. They are in the order
// of the keys, so that of several callers one gets what it needs.
func (b *Backend) groups(limits []window.Limit) [][]int {
	all := make([]int, len(limits))
	for i := range all {
		all[i] = i
	}
	if len(limits) == 1 || !b.client.Cluster() {
		return [][]int{all}
	}
	byKey := map[string][]int{}
	for i := range limits {
		byKey[limits[i].Key] = append(byKey[limits[i].Key], i)
	}
	groups := make([][]int, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		groups = append(groups, byKey[key])
	}
	return groups
}

// takeGroup makes the takes of a group, all or none.
func (b *Backend) takeGroup(ctx context.Context, limits []window.Limit, windows []window.Window, group []int, id string) (bool, error) {
	if b.rolling != nil {
		return b.takeRolling(ctx, limits, windows, group, true)
	}
	now, err := b.time()
	if err != nil {
		return false, err
	}
	keys := make([]string, len(group))
	args := append(make([]string, 0, 4+3*len(group)), now, b.aligned(), b.grace(), id)
	for j, i := range group {
		l := &limits[i]
		keys[j] = b.name(l.Key)
		args = append(args, strconv.FormatInt(l.Scale.Microseconds(), 10), strconv.FormatUint(l.Limit, 10),
			strconv.FormatUint(min(l.N, MaxCount+1), 10)) // more than the limit is refused in any case
	}
	response, err := b.run(ctx, takeScript, keys, args)
	if err != nil {
		return false, err
	}
	if len(response) != 2+4*len(group) {
		return false, fmt.Errorf("script returned %v", response)
	}
	for j, i := range group {
		windows[i] = window.Window{}
		if v := response[2+4*j:]; v[0] >= 0 {
			windows[i] = describe(limits[i].Scale, v[0], v[1], response[1], v[2], v[3])
		}
	}
	return response[0] == 1, nil
}

// undo gives back what some takes were granted, and removes the windows that they have opened if these
// have nothing else. If ctx ends, it returns, and goes on. What can't be given back stays counted.
func (b *Backend) undo(ctx context.Context, limits []window.Limit, windows []window.Window, granted []int, id string) {
	var all sync.WaitGroup
	for _, i := range granted {
		l, w := limits[i], windows[i].ID
		if l.N == 0 {
			continue
		}
		all.Go(func() {
			_, _ = b.giveBack(context.WithoutCancel(ctx), l.Key, l.Scale, w, l.N, strconv.FormatInt(w, 10) == id)
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

// readOthers reads the windows of all limits that are not in the group that has refused.
func (b *Backend) readOthers(ctx context.Context, limits []window.Limit, windows []window.Window, refused []int) (err error) {
	for i := range limits {
		if !slices.Contains(refused, i) {
			if windows[i], err = b.read(ctx, limits[i].Key, limits[i].Scale); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Backend) giveBack(ctx context.Context, key string, scale time.Duration, id int64, n uint64, remove bool) (bool, error) {
	field, err := fieldOf(scale)
	if err != nil {
		return false, err
	}
	now, err := b.time()
	if err != nil {
		return false, err
	}
	if b.rolling != nil {
		return b.giveBackRolling(ctx, key, field, now, id, n)
	}
	empty := "0"
	if remove {
		empty = "1"
	}
	n = min(n, MaxCount)
	args := []string{field, now, strconv.FormatInt(id, 10), strconv.FormatUint(n, 10), empty}
	response, err := b.run(ctx, giveBackScript, []string{b.name(key)}, args)
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
