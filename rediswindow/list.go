package rediswindow

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/internal/redisclient"
	"github.com/throttr-go/throttr/window"
)

// listStep is how many hashes List reads at a time.
const listStep = 32

// List implements [window.Backend]. Without keys it asks all primaries for the names of hashes. It reads 32 hashes at
// a time: what they have, and then the windows.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	read := func(name string) ([]window.Listed, error) { return b.listHash(ctx, name) }
	return list(b, "list", b.names(ctx, keys), read)
}

// list returns what read finds in hashes, of which it reads some at a time.
func list[T any](b *Backend, call string, names iter.Seq2[string, error],
	read func(name string) ([]T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next, stop := iter.Pull2(names)
		defer stop()
		_, err := b.cluster()
		for more := true; more && err == nil; {
			var hashes []string
			for more && err == nil && len(hashes) < listStep {
				var name string
				if name, err, more = next(); more && err == nil {
					hashes = append(hashes, name)
				}
			}
			found, failed := readAll(hashes, read)
			for _, t := range found {
				if !yield(t, nil) {
					b.stats.Count(nil)
					return
				}
			}
			err = cmp.Or(err, failed)
		}
		if err := b.after(call, "", err); err != nil {
			var none T
			yield(none, err)
		}
	}
}

// readAll reads hashes at once, and returns what they have up to the first error. What is damaged is passed over.
func readAll[T any](names []string, read func(name string) ([]T, error)) (all []T, err error) {
	found := make([][]T, len(names))
	errs := make([]error, len(names))
	var reads sync.WaitGroup
	for i, name := range names {
		reads.Go(func() { found[i], errs[i] = read(name) })
	}
	reads.Wait()
	for i := range names {
		if errs[i] != nil && !redisclient.Damaged(errs[i]) {
			return all, errs[i]
		}
		all = append(all, found[i]...)
	}
	return all, nil
}

// names returns the names of the hashes of keys, or of all.
func (b *Backend) names(ctx context.Context, keys []string) iter.Seq2[string, error] {
	if len(keys) == 0 {
		return b.client.Scan(ctx, glob.Replace(b.prefix)+"{[kh]:*}"+version)
	}
	return func(yield func(string, error) bool) {
		for _, key := range keys {
			if !yield(b.nameOf(key), nil) {
				return
			}
		}
	}
}

// glob quotes what has a meaning in patterns of Redis.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// listHash returns the windows of a hash.
func (b *Backend) listHash(ctx context.Context, name string) (all []window.Listed, err error) {
	tag := b.tagOf(name)
	there, err := b.ofAll(ctx, peek, name, nil)
	for i := range there {
		if w := there[i].window(0, 1); w != (window.Window{}) {
			all = append(all, window.Listed{Key: tag[2:], Digest: tag[0] == 'h', Limit: there[i].limit, Window: w})
		}
	}
	return all, err
}

// ofAll asks the same of all limits of which a hash has a state, or of those with some scales, in one step.
func (b *Backend) ofAll(ctx context.Context, v verb, hash string, scales []time.Duration) (all []question, err error) {
	there, err := b.stored(ctx, hash)
	for i := range there {
		if len(scales) == 0 || slices.Contains(scales, there[i].Scale) {
			all = append(all, question{verb: v, hash: hash, limit: there[i]})
		}
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if _, err := b.askAll(ctx, all); err != nil {
		return nil, err
	}
	return all, nil
}

// stored returns the limits of which a hash has a state. Their Max and Burst are those last used.
func (b *Backend) stored(ctx context.Context, name string) (all []window.Limit, err error) {
	text, err := b.runScript(ctx, fieldsScript, []string{name})
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		l, err := readField(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%w: the script returned a line that is no field: %w", window.ErrUnavailable, err)
		}
		all = append(all, l)
	}
	return all, nil
}

// readField reads a line of fieldsScript.
func readField(line string) (l window.Limit, err error) {
	field, name, _ := strings.Cut(line, ":")
	var letter byte
	var holds uint64
	var scale int64
	if _, err := fmt.Sscanf(field, "%d %d %c%d", &l.Max, &holds, &letter, &scale); err != nil {
		return l, err
	}
	l.Name = name
	l.Algorithm = window.Algorithm(strings.IndexByte(string(letters[:]), letter))
	if l.Algorithm == window.CalendarWindow {
		return l, readCalendar(field, &l)
	}
	l.Scale = time.Duration(scale) * time.Microsecond
	if l.Algorithm == window.TokenBucket && holds != l.Max {
		l.Burst = holds
	}
	return l, nil
}
