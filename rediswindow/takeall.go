package rediswindow

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/internal/api"
	"github.com/throttr-go/throttr/internal/limits"
	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// TakeAll implements [window.Backend]. On one server it is one script, whatever the algorithms are. In a
// cluster, and behind a proxy that refuses a script on several keys with CROSSSLOT, it is one script for each key, in
// the order of the keys: if one of them refuses, the others give back, even after ctx has ended. Until then, other
// callers may be refused what was taken. If a script fails, what it has taken stays counted until the windows end.
func (b *Backend) TakeAll(ctx context.Context, takes []window.Take, windows []window.Window) (bool, error) {
	check := func(t *window.Take) error {
		_, err := b.check(&t.Limit)
		return err
	}
	granted, key, err := limits.TakeAll(ctx, takes, windows, check, b.takeAll)
	return granted, b.after("take", key, err)
}

// takeAll makes takes of different counts, all or none. An error names a key that it is about.
func (b *Backend) takeAll(ctx context.Context, takes []window.Take, windows []window.Window) (granted bool, err error) {
	cluster, err := b.cluster()
	if err != nil {
		return false, err
	}
	ops := make([]op, len(takes))
	for i := range takes {
		t := &takes[i]
		ops[i] = op{verb: take, limit: t.Limit, n: t.N, key: t.Key, at: i, name: b.nameOf(t.Key)}
	}
	// In the order of the keys, of several callers one gets what it needs.
	slices.SortStableFunc(ops, func(x, y op) int { return strings.Compare(x.key, y.key) })
	groups := [][]op{ops}
	if cluster {
		groups = apart(ops)
	}
	granted, err = b.takeGroups(ctx, groups)
	if !cluster && redisclient.About(err) == redisclient.Slots { // of a proxy to several servers; nothing was executed
		granted, err = b.takeGroups(ctx, apart(ops))
	}
	if err != nil {
		return false, err
	}
	for i := range ops {
		w, _, _ := ops[i].window()
		if !granted && ops[i].limit.Algorithm.Rolling() {
			w.ID = 0
		}
		windows[ops[i].at] = w
	}
	return granted, nil
}

// apart returns groups of one key each: in a cluster, while a slot moves to another node, a script may have only one.
func apart(ops []op) (groups [][]op) {
	for len(ops) > 0 {
		n := 1
		for n < len(ops) && ops[n].name == ops[0].name {
			n++
		}
		groups = append(groups, ops[:n])
		ops = ops[n:]
	}
	return groups
}

// takeGroups makes the takes of groups, one group after the other, all or none. If one refuses, those before it give
// back, and those behind it are looked at.
func (b *Backend) takeGroups(ctx context.Context, groups [][]op) (granted bool, err error) {
	granted = true
	for i, g := range groups {
		made, err := b.askGroup(ctx, g)
		if granted && (!made || err != nil) {
			granted = false
			err = cmp.Or(err, b.undo(ctx, groups[:i]))
			for _, behind := range groups[i+1:] {
				for k := range behind {
					behind[k].verb = peek
				}
			}
		}
		if err != nil {
			return false, err
		}
	}
	return granted, nil
}

// askGroup asks what a group is about, and reports whether all of it was made.
func (b *Backend) askGroup(ctx context.Context, ops []op) (made bool, err error) {
	if err := b.run(ctx, ops); err != nil {
		return false, failed("take", ops[0].key, err)
	}
	made = true
	for i := range ops {
		_, one, wrong := ops[i].window()
		made = made && one
		err = cmp.Or(err, failed("take", ops[i].key, wrong))
	}
	return made, err
}

// undo gives back what was taken, and leaves what is there then in the ops. If ctx ends, it returns an error, and
// goes on. What can't be given back stays counted.
func (b *Backend) undo(ctx context.Context, taken [][]op) (err error) {
	for _, g := range taken {
		for i := range g {
			o := &g[i]
			w, _, _ := o.window()
			o.verb = undo
			o.of = takeOf(&o.limit, w.ID)
			if !o.limit.Algorithm.Rolling() {
				o.of.series = uint64(o.answer.series)
			}
			if o.n == 0 {
				o.verb = peek
			}
		}
		var failure error
		ended := api.Await(ctx, func() { failure = b.run(context.WithoutCancel(ctx), g) })
		if ended == nil {
			ended = failure
		} else {
			ended = notDone(ended, true)
		}
		err = cmp.Or(err, failed("take", g[0].key, ended))
	}
	return err
}
