package throttr

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/inspect"
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
	if !b.closing.Load() {
		return b.client.listWindows(ctx, keys)
	}
	return func(yield func(Listed, error) bool) { yield(Listed{}, b.after("list", "", false, ErrClosed)) }
}

// listWindows lists the open windows of some keys, or of all.
func (c *client) listWindows(ctx context.Context, keys []string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		w := windowReader{client: c, yield: yield}
		for r, err := range c.List(ctx) {
			if err != nil { // it comes last
				if w.read(ctx) {
					yield(Listed{}, joined(append(w.failures, err)))
				}
				return
			}
			name, ok := fixedwindow.ParseName([]byte(r.Key))
			isOf := func(key string) bool { return name.IsOf(key, name.Limit()) }
			if ok && (len(keys) == 0 || slices.ContainsFunc(keys, isOf)) && !w.add(ctx, r, name) {
				return
			}
		}
		if w.read(ctx) && len(w.failures) > 0 {
			yield(Listed{}, joined(w.failures))
		}
	}
}

// windowReader reads records of windows, many of a server at a time, and yields those that are open.
type windowReader struct {
	client *client
	yield  func(Listed, error) bool
	server string // whose records are pending
	names  []fixedwindow.Name
	call   *conn.Call // reads the records of names; nil if there are none

	failed   string // the last server that a read has failed on: its further records are not read
	failures []error
}

// readStep is the most records that are read at a time.
const readStep = 256

// add adds a record to those that are pending. It returns false if the loop has ended.
func (w *windowReader) add(ctx context.Context, r inspect.Record, name fixedwindow.Name) bool {
	if (r.Server != w.server || len(w.names) == min(readStep, w.client.cfg.MaxInFlight)) && !w.read(ctx) {
		return false
	}
	if r.Server == w.failed {
		return true
	}
	if w.call == nil {
		w.server = r.Server
		w.call = w.client.newCall("")
	}
	if err := conn.Add(w.call, codec.Query{Key: []byte(r.Key)}); err != nil {
		return w.yield(Listed{}, err)
	}
	w.names = append(w.names, name)
	return true
}

// read reads what is pending. It returns false if the loop has ended.
func (w *windowReader) read(ctx context.Context) bool {
	if w.call == nil {
		return true
	}
	names, call := w.names, w.call
	w.names, w.call = nil, nil
	done, sent, err := w.client.servers.named(w.server).pool.Do(ctx, call)
	if err != nil {
		w.failed = w.server
		w.failures = append(w.failures, requestError(w.server, codec.OpQuery, sent, err))
		return true
	}
	if done {
		defer w.client.calls.Put(call)
	}
	now := time.Now()
	for i, response := range call.Responses {
		l := Listed{Key: names[i].Key, Digest: names[i].Hashed, Limit: names[i].Limit()}
		if !response.OK {
			continue
		}
		l.Window, _ = names[i].Window(w.client.calls.Size().Largest(), response.Quota, response.TTL.Duration(), now)
		if l.Window.ExpiresAt.IsZero() {
			continue
		}
		rest := conn.TTL{Amount: 1, Unit: response.TTL.Unit}.Duration() // the server rounds a TTL down
		l.Window.Left += rest
		l.Window.ExpiresAt = l.Window.ExpiresAt.Add(rest)
		if !w.yield(l, nil) {
			return false
		}
	}
	return true
}
