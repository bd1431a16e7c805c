package postgresbackend

import (
	"context"
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

// List implements [window.Backend]. It reads 256 rows at a time, in the order of their keys. The error of a row that
// can't be read follows the others.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		var failed error
		for f := range b.find(ctx, keys...) {
			l, err := f.listed()
			if err != nil {
				failed = b.after("list", f.key, err)
				continue
			}
			if l.Window.Left > 0 && !yield(l, nil) {
				_ = b.after("list", "", nil)
				return
			}
		}
		if failed == nil {
			_ = b.after("list", "", nil)
			return
		}
		yield(window.Listed{}, failed)
	}
}

// found is a row that was found, or the error of finding some.
type found struct {
	id
	limit window.Limit // without Max and Burst
	state []byte
	at    algorithm.Time
	err   error
}

// listed describes what is counted.
func (f *found) listed() (window.Listed, error) {
	if f.err != nil {
		return window.Listed{}, f.err
	}
	p := newPart("", &f.limit, 0)
	p.row = &row{count: p.count}
	if p.row.load(f.state, 0); p.row.err != nil {
		return window.Listed{}, p.row.err
	}
	record := &p.row.record
	p.rule.Max = record.Max
	p.rule.Holds = record.Holds
	p.describe(p.peek(f.at, 0), f.at)
	p.window.Refused = false // nothing was asked
	p.window.RetryAfter = 0
	l := f.limit
	l.Max = record.Max
	if record.Holds != record.Max {
		l.Burst = record.Holds
	}
	return window.Listed{Key: f.key, Digest: len(f.key) > longestKey, Limit: l, Window: p.window}, nil
}

// find returns the rows of some keys, or of all, that have a state. After an error, there are no others.
func (b *Backend) find(ctx context.Context, keys ...string) iter.Seq[found] {
	return func(yield func(found) bool) {
		if len(keys) == 0 {
			b.findBetween(ctx, id{}, lastKey, yield)
			return
		}
		for _, key := range keys {
			stored := storedKey(key)
			if !b.findBetween(ctx, id{key: stored}, stored, yield) {
				return
			}
		}
	}
}

// findBetween yields the rows after an id, up to a key. It returns false if no others are to be yielded.
func (b *Backend) findBetween(ctx context.Context, after id, last string, yield func(found) bool) bool {
	for {
		page, err := b.page(ctx, after, last)
		if err != nil {
			yield(found{err: err})
			return false
		}
		for _, f := range page {
			if !yield(f) {
				return false
			}
		}
		if len(page) < listPage {
			return true
		}
		after = page[len(page)-1].id
	}
}

// page reads the rows after an id, up to a key, but at most listPage.
func (b *Backend) page(ctx context.Context, after id, last string) (page []found, err error) {
	err = b.bound(ctx, func(ctx context.Context) error {
		rows, _ := b.pool.Query(ctx, b.sql.list, []byte(after.key), []byte(after.limit), []byte(last), int64(listPage))
		page, err = pgx.CollectRows(rows, b.scan)
		return err
	})
	return page, err
}

// scan reads a row of listSQL.
func (b *Backend) scan(row pgx.CollectableRow) (f found, err error) {
	var key, limit []byte
	var micros int64
	err = row.Scan(&key, &limit, &f.state, &micros)
	if err == nil {
		f.id = id{string(key), string(limit)}
		f.at = b.timeOf(micros)
		f.limit, f.err = f.id.windowLimit()
	}
	return f, err
}
