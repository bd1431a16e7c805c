package throttr

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/fixedwindow"
)

// List implements [Backend]. A server lists all of its records, whatever the keys are, and then reads those of
// windows: 100,000 of them take it half a second. Servers do not store the Max of a limit. If a key and the name of
// its limit have over 80 bytes together, the server knows a digest of both, which is found without keys, or by the
// key if the limit has no name.
//
// If a server fails, the windows of the others come, and the error last, or several, joined.
func (b *ServerBackend) List(ctx context.Context, keys ...string) iter.Seq2[Listed, error] {
	if b.closing.Load() {
		return func(yield func(Listed, error) bool) { yield(Listed{}, b.after("list", "", false, ErrClosed)) }
	}
	return ofServers(ctx, b.client, func(s *server, yield func(Listed) bool) error {
		w := windowReader{client: b.client, server: s, yield: yield}
		err := readEntries(ctx, s, codec.List{}, b.client.recordDecoder, func(r conn.Record) bool {
			name, ok := fixedwindow.ParseName(r.Key)
			isOf := func(key string) bool { return name.IsOf(key, name.Limit()) }
			if !ok || len(keys) > 0 && !slices.ContainsFunc(keys, isOf) {
				return true
			}
			return w.add(ctx, r.Key, name)
		})
		if !w.ended {
			w.read(ctx)
		}
		if err != nil {
			w.failures = append(w.failures, err)
		}
		return joined(w.failures)
	})
}

// windowReader reads records of windows of a server, many at a time, and yields those that are open.
type windowReader struct {
	client   *client
	server   *server
	yield    func(Listed) bool
	names    []fixedwindow.Name
	call     *conn.Call // reads the records of names; nil if there are none
	ended    bool       // the loop has, or a read has failed
	failures []error
}

// readStep is the most records that are read at a time.
const readStep = 256

// add adds a record to those that are to be read, and reads them if they are many. It returns false at the end.
func (w *windowReader) add(ctx context.Context, record []byte, name fixedwindow.Name) (more bool) {
	if w.call == nil {
		w.call = w.client.newCall("")
	}
	_ = conn.Add(w.call, codec.Query{Key: record}) // the call fails, too
	w.names = append(w.names, name)
	if len(w.names) == min(readStep, w.client.cfg.MaxInFlight) {
		w.read(ctx)
	}
	return !w.ended
}

// read reads what is to be read.
func (w *windowReader) read(ctx context.Context) {
	names, call := w.names, w.call
	w.names, w.call = nil, nil
	if call == nil {
		return
	}
	done, sent, err := w.server.pool.Do(ctx, call)
	if err != nil {
		w.ended = true
		w.failures = append(w.failures, &RequestError{Server: w.server.name, Op: codec.OpQuery, Sent: sent, Err: err})
		return
	}
	if done {
		defer w.client.calls.Put(call)
	}
	now := time.Now()
	for i, response := range call.Responses {
		if !response.OK {
			continue
		}
		l := Listed{Key: names[i].Key, Digest: names[i].Hashed, Limit: names[i].Limit()}
		l.Window, _ = names[i].Window(w.client.calls.Size().Largest(), response.Quota, response.TTL.Duration(), now)
		if l.Window.ExpiresAt.IsZero() {
			continue
		}
		rest := conn.TTL{Amount: 1, Unit: response.TTL.Unit}.Duration() // the server rounds a TTL down
		l.Window.Left += rest
		l.Window.ExpiresAt = l.Window.ExpiresAt.Add(rest)
		if !w.yield(l) {
			w.ended = true
			return
		}
	}
}
