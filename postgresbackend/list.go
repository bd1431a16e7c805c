package postgresbackend

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// listPage is how many rows List reads at a time.
const listPage = 256

// lastKey is after all keys that are stored.
var lastKey = strings.Repeat("\xff", longestKey+2)

// List implements [window.Backend]. It reads 256 rows at a time, in the order of their keys.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		err := b.list(ctx, keys, yield)
		if errors.Is(err, errEnded) {
			err = nil
		}
		if err := b.after("list", "", err); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

// errEnded says that the body of the loop has ended it.
var errEnded = errors.New("ended")

func (b *Backend) list(ctx context.Context, keys []string, yield func(window.Listed, error) bool) error {
	if len(keys) == 0 {
		return yieldListed(b.foundBetween(ctx, id{}, lastKey), yield)
	}
	for _, key := range keys {
		if err := yieldListed(b.found(ctx, key), yield); err != nil {
			return err
		}
	}
	return nil
}

// yieldListed yields what counts of what is found.
func yieldListed(all iter.Seq2[found, error], yield func(window.Listed, error) bool) error {
	for f, err := range all {
		if err != nil {
			return err
		}
		l, err := f.listed()
		if err != nil {
			return err
		}
		if l.Window.Left > 0 && !yield(l, nil) {
			return errEnded
		}
	}
	return nil
}

// found is a row that was found.
type found struct {
	id
	limit window.Limit // without Max and Burst
	state []byte
	at    algorithm.Time
}

// listed describes what counts.
func (f *found) listed() (window.Listed, error) {
	a := algorithm.Of(f.limit.Algorithm)
	r := row{algorithm: a, scale: f.limit.Scale}
	if r.load(f.state, 0); r.err != nil {
		return window.Listed{}, r.err
	}
	p := part{algorithm: a, rule: r.record.Rule, row: &r}
	p.describe(p.peek(f.at, p.n), f.at)
	l := f.limit
	l.Max = r.record.Max
	if r.record.Holds != r.record.Max {
		l.Burst = r.record.Holds
	}
	return window.Listed{Key: f.key, Digest: len(f.key) > longestKey, Limit: l, Window: p.window}, nil
}

// found returns the rows of a key that have a state.
func (b *Backend) found(ctx context.Context, key string) iter.Seq2[found, error] {
	stored := storedKey(key)
	return b.foundBetween(ctx, id{key: stored}, stored)
}

// foundBetween returns the rows after an id, up to a key.
func (b *Backend) foundBetween(ctx context.Context, after id, last string) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		for {
			page, err := b.page(ctx, after, last)
			if err != nil {
				yield(found{}, err)
				return
			}
			for _, f := range page {
				if !yield(f, nil) {
					return
				}
			}
			if len(page) < listPage {
				return
			}
			after = page[len(page)-1].id
		}
	}
}

// page reads the rows after an id, up to a key, but at most listPage.
func (b *Backend) page(ctx context.Context, after id, last string) (page []found, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.closed.Load() {
		return nil, window.ErrClosed
	}
	bounded, cancel := b.bounded(ctx)
	defer cancel()
	rows, err := b.pool.Query(bounded, b.sql.list, []byte(after.key), []byte(after.limit), []byte(last), int64(listPage))
	if err == nil {
		page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
			var key, limit []byte
			var micros int64
			if err := row.Scan(&key, &limit, &f.state, &micros); err != nil {
				return f, err
			}
			f.id = id{string(key), string(limit)}
			f.at = b.timeOf(micros)
			f.limit, err = f.id.lim()
			return f, err
		})
	}
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, errRow) {
		return nil, err
	}
	return page, b.storeError(err)
}
