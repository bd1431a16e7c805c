package rediswindow

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/throttr-go/throttr/internal/deadline"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/window"
)

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
			return false, b.after("take", takes[i].Key, err)
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
	return granted, b.after("take", takes[0].Key, err)
}

// takeAll makes takes of different counts, all or none.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	cluster, err := b.cluster()
	if err != nil {
		return false, err
	}
	groups := groupsOf(takes, cluster)
	if groups == nil {
		granted, _, err := b.takeGroup(ctx, takes, windows, nil)
		return granted, err
	}
	undo := make([]part, 0, len(takes))
	for _, group := range groups {
		granted, id, err := b.takeGroup(ctx, takes, windows, group)
		if granted && err == nil {
			for _, i := range group {
				t, w := &takes[i], &windows[i]
				opened := w.ID >= id && w.ID < id+maxLimits
				undo = append(undo, part{t.Key, policy{verb: back, limit: t.Limit, n: t.N, id: w.ID, remove: opened}})
			}
			continue
		}
		b.giveBackAll(ctx, undo)
		if err != nil {
			return false, err
		}
		return false, b.peekOthers(ctx, takes, windows, group)
	}
	return true, nil
}

// groupsOf returns the indices of takes, in groups that a script can make, or nil if it can make all: at most
// maxLimits, and in a cluster those of a key, because while a slot moves to another node, a script may have only
// one key. They are in the order of the keys, so that of several callers one gets what it needs.
func groupsOf(takes []window.Take, cluster bool) (groups [][]int) {
	differ := slices.ContainsFunc(takes, func(t window.Take) bool { return t.Key != takes[0].Key })
	if len(takes) <= maxLimits && !(cluster && differ) {
		return nil
	}
	order := make([]int, len(takes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(takes[i].Key, takes[j].Key) })
	var group []int
	for n, i := range order {
		if n > 0 && (len(group) == maxLimits || cluster && takes[i].Key != takes[group[0]].Key) {
			groups, group = append(groups, group), nil
		}
		group = append(group, i)
	}
	return append(groups, group)
}

// takeGroup makes the takes with some indices, or all if there are none: all or none. It also returns the first of the
// IDs of the windows that the request has opened.
func (b *Backend) takeGroup(ctx context.Context, takes []window.Take, windows []window.Window, group []int) (granted bool, id int64, err error) {
	c := b.combiner().Get()
	index := func(i int) int {
		if group == nil {
			return i
		}
		return group[i]
	}
	size := cmp.Or(len(group), len(takes))
	v := &c.Value
	for i := range size {
		t := &takes[index(i)]
		v.parts = append(v.parts, part{t.Key, policy{limit: t.Limit, n: t.N}})
	}
	answered, err := b.do(ctx, c)
	if !answered {
		return false, 0, err
	}
	if err == nil {
		for i, w := range v.windows {
			windows[index(i)] = w
		}
		granted, id = v.n > 0, v.id
	}
	b.end(c)
	return granted, id, err
}

// giveBackAll makes give-backs. If ctx ends, it returns, and goes on. What can't be given back stays counted.
func (b *Backend) giveBackAll(ctx context.Context, parts []part) {
	caller, _ := deadline.Split(ctx)
	var all sync.WaitGroup
	for _, p := range parts {
		if p.n > 0 {
			all.Go(func() { _, _ = b.giveBack(context.WithoutCancel(caller), p.key, p.policy) })
		}
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
			if windows[i], _, err = b.one(ctx, takes[i].Key, policy{verb: peek, limit: takes[i].Limit, n: takes[i].N}); err != nil {
				return err
			}
		}
	}
	return nil
}
