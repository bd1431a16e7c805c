package rediswindow

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// TakeAll implements [window.Backend]. On one server it is one script, whatever the algorithms are. In a
// cluster, and behind a proxy that refuses a script on several keys with CROSSSLOT, it is one script for each key, in
// the order of the keys: if one of them refuses, the others give back, even after ctx has ended. Until then, other
// callers may be refused what was taken. If a script fails, what it has taken stays counted until the windows end.
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
	granted, err := b.takeGroups(ctx, takes, windows, groupsOf(takes, cluster))
	if !cluster && redisclient.HasCode(err, "CROSSSLOT") { // of a proxy to several servers; nothing was executed
		return b.takeGroups(ctx, takes, windows, groupsOf(takes, true))
	}
	return granted, err
}

// takeGroups makes the takes of groups, one group after the other, all or none.
func (b *Backend) takeGroups(ctx context.Context, takes []window.Take, windows []window.Window,
	groups [][]int) (bool, error) {
	var made []question // to undo
	for _, group := range groups {
		undo, err := b.takeGroup(ctx, takes, windows, group)
		if undo != nil && err == nil {
			made = append(undo, made...)
			continue
		}
		b.undoAll(ctx, made)
		if err != nil || len(groups) == 1 {
			return false, err
		}
		return false, b.peekOthers(ctx, takes, windows, group)
	}
	return true, nil
}

// groupsOf returns the indices of takes, in groups that a script can make. If apart is true, each is of one key: in a
// cluster, because while a slot moves to another node, a script may have only one key. They are in the order of the
// keys, so that of several callers one gets what it needs.
func groupsOf(takes []window.Take, apart bool) (groups [][]int) {
	if !apart {
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
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		groups = append(groups, byKey[key])
	}
	return groups
}

// takeGroup makes the takes with some indices, all or none. It returns what undoes them; nil: none was made.
func (b *Backend) takeGroup(ctx context.Context, takes []window.Take, windows []window.Window,
	group []int) (made []question, err error) {
	asked := make([]question, len(group))
	for n, i := range group {
		asked[n] = question{verb: take, key: takes[i].Key, limit: takes[i].Limit, n: takes[i].N}
	}
	rank, err := b.askAll(ctx, asked)
	if err != nil {
		return nil, err
	}
	granted := true
	for n := range asked {
		err = cmp.Or(err, asked[n].err())
		granted = granted && rank < int(asked[n].fit)
	}
	for n, i := range group {
		windows[i] = asked[n].window(rank, int(asked[n].fit))
		if !granted && takes[i].Limit.Algorithm.Rolling() {
			windows[i].ID = 0
		}
		asked[n].verb = undo
		asked[n].id = windows[i].ID
	}
	if !granted || err != nil {
		return nil, err
	}
	return asked, nil
}

// undoAll gives back what was taken. If ctx ends, it returns, and goes on. What can't be given back stays counted.
func (b *Backend) undoAll(ctx context.Context, made []question) {
	_ = api.Await(ctx, func() {
		for _, q := range made {
			if q.n > 0 && known(q.limit.Algorithm, q.id) {
				_, _, _ = b.ask(context.WithoutCancel(ctx), q)
			}
		}
	})
}

// peekOthers looks at the windows of all takes that are not in the group that has refused.
func (b *Backend) peekOthers(ctx context.Context, takes []window.Take, windows []window.Window,
	refused []int) (err error) {
	for i := range takes {
		if !slices.Contains(refused, i) {
			t := &takes[i]
			if windows[i], _, err = b.ask(ctx, question{verb: peek, key: t.Key, limit: t.Limit, n: t.N}); err != nil {
				return err
			}
		}
	}
	return nil
}
