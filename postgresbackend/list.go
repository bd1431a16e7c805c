package postgresbackend

import (
	"bytes"
	"context"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throttr-go/throttr/internal/algorithm"
	"github.com/throttr-go/throttr/window"
)

// List implements [window.Backend]. It reads 256 rows at a time, in the order of their keys. The error of a row that
// can't be read follows the others.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		var key []byte // of the row with the error
		var failed error
		for spans := spansOf(keys); len(spans) > 0; {
			var page []found
			s := &spans[0]
			err := b.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
				rows, _ := conn.Query(ctx, b.sql(listSQL), s.key, s.lim, s.last, int64(maxRows))
				page, err = pgx.CollectRows(rows, pgx.RowToStructByPos[found])
				return err
			})
			if err != nil {
				key, failed = nil, err
				break
			}
			for _, f := range page {
				l, err := b.listed(f)
				if err != nil {
					key, failed = f.Key, err
				} else if l.Window.Left > 0 && !yield(l, nil) {
					_ = b.after("list", "", nil)
					return
				}
				s.key = f.Key
				s.lim = f.Lim
			}
			if len(page) < maxRows {
				spans = spans[1:]
			}
		}
		if err := b.after("list", string(key), failed); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

// span is the rows after a key and lim, up to the last key.
type span struct{ key, lim, last []byte }

// spansOf returns the rows of some keys, or those of all: no key that is stored has as many bytes as the last one.
func spansOf(keys []string) (spans []span) {
	if len(keys) == 0 {
		return []span{{key: []byte{}, lim: []byte{}, last: bytes.Repeat([]byte{0xff}, longestKey+2)}}
	}
	for _, key := range keys {
		stored := []byte(storedKey(key))
		spans = append(spans, span{key: stored, lim: []byte{}, last: stored})
	}
	return spans
}

// found is a row as listSQL returns it.
type found struct {
	Key, Lim, State []byte
	Micros          int64
}

// listed describes what is counted.
func (b *Backend) listed(f found) (window.Listed, error) {
	l, err := windowLimit(f.Lim)
	if err != nil {
		return window.Listed{}, unreadable(err)
	}
	record, err := algorithm.Of(l.Algorithm).ReadBinary(f.State)
	if err != nil {
		return window.Listed{}, unreadable(err)
	}
	return algorithm.Listed(string(f.Key), len(f.Key) > longestKey, l, &record, b.timeOf(f.Micros)), nil
}
