package postgresbackend

import (
	"context"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
		var key string // of the row with the error
		var failed error
		for spans := spansOf(keys); len(spans) > 0; {
			page, err := b.page(ctx, spans[0])
			if err != nil {
				key, failed = "", err
				break
			}
			for _, f := range page {
				l, err := f.listed()
				if err != nil {
					key, failed = f.key, err
				} else if l.Window.Left > 0 && !yield(l, nil) {
					_ = b.after("list", "", nil)
					return
				}
			}
			if len(page) < listPage {
				spans = spans[1:]
			} else {
				spans[0].after = page[len(page)-1].id
			}
		}
		if err := b.after("list", key, failed); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

// found is a row that was found.
type found struct {
	id
	state []byte
	at    algorithm.Time
}

// listed describes what is counted.
func (f *found) listed() (window.Listed, error) {
	l, err := f.windowLimit()
	if err != nil {
		return window.Listed{}, err
	}
	r := row{count: newPart("", &l, 0).count}
	r.load(f.state, 0, f.at)
	if r.err != nil {
		return window.Listed{}, r.err
	}
	return algorithm.Listed(f.key, len(f.key) > longestKey, l, &r.record, f.at), nil
}

// span is the rows after an id, up to a key.
type span struct {
	after id
	last  string
}

// spansOf returns the rows of some keys, or of all.
func spansOf(keys []string) (spans []span) {
	if len(keys) == 0 {
		return []span{{last: lastKey}}
	}
	for _, key := range keys {
		stored := storedKey(key)
		spans = append(spans, span{id{key: stored}, stored})
	}
	return spans
}

// page reads the first rows of a span, at most listPage.
func (b *Backend) page(ctx context.Context, s span) (page []found, err error) {
	err = b.on(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, _ := conn.Query(ctx, b.sql.list, []byte(s.after.key), []byte(s.after.limit), []byte(s.last), int64(listPage))
		page, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
			var key, limit []byte
			var micros int64
			err = row.Scan(&key, &limit, &f.state, &micros)
			f.id = id{string(key), string(limit)}
			f.at = b.timeOf(micros)
			return f, err
		})
		return err
	})
	return page, err
}
