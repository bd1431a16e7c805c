package rediswindow

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/throttr-go/throttr/window"
)

// listStep is how many hashes List reads at a time.
const listStep = 32

// errEnded says that the body of the loop has ended it.
var errEnded = errors.New("ended")

// List implements [window.Backend]. Without keys it asks all primaries for the names of hashes. It reads 32 hashes at
// a time: what they have, and then the windows.
func (b *Backend) List(ctx context.Context, keys ...string) iter.Seq2[window.Listed, error] {
	return func(yield func(window.Listed, error) bool) {
		err := b.list(ctx, keys, yield)
		if err == errEnded {
			err = nil
		}
		if err := b.after("list", "", err); err != nil {
			yield(window.Listed{}, err)
		}
	}
}

func (b *Backend) list(ctx context.Context, keys []string, yield func(window.Listed, error) bool) error {
	if _, err := b.cluster(); err != nil {
		return err
	}
	step := make([]string, 0, listStep)
	for name, err := range b.names(ctx, keys) {
		if err != nil {
			return err
		}
		if step = append(step, name); len(step) < listStep {
			continue
		}
		if err := b.listStep(ctx, step, yield); err != nil {
			return err
		}
		step = step[:0]
	}
	return b.listStep(ctx, step, yield)
}

// names returns the names of the hashes of keys, or of all.
func (b *Backend) names(ctx context.Context, keys []string) iter.Seq2[string, error] {
	if len(keys) == 0 {
		return b.client.Scan(ctx, glob.Replace(b.prefix)+"{[kh]:*}"+version)
	}
	return func(yield func(string, error) bool) {
		for _, key := range keys {
			if !yield(string(b.appendName(nil, key)), nil) {
				return
			}
		}
	}
}

// glob quotes what has a meaning in patterns of Redis.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// listStep lists the windows of some hashes.
func (b *Backend) listStep(ctx context.Context, names []string, yield func(window.Listed, error) bool) error {
	found, errs := make([][]window.Listed, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { found[i], errs[i] = b.listHash(ctx, name) })
	}
	all.Wait()
	for i := range names {
		if errs[i] != nil {
			return errs[i]
		}
		for _, l := range found[i] {
			if !yield(l, nil) {
				return errEnded
			}
		}
	}
	return nil
}

// listHash returns the windows of a hash.
func (b *Backend) listHash(ctx context.Context, name string) (all []window.Listed, err error) {
	there, err := b.stored(ctx, name)
	if err != nil || len(there) == 0 {
		return nil, err
	}
	c := b.newCall()
	asks := make([]ask, len(there))
	for i := range there {
		asks[i] = ask{verb: peek, hash: name, limit: &there[i], more: i < len(there)-1}
		b.add(&c.Value, &asks[i])
	}
	if answered, err := b.do(ctx, c); !answered || err != nil {
		return nil, err
	}
	tag := b.tagOf(name)
	for i := range there {
		a := c.Value.answer(i)
		w := a.window(c.Value.now, &asks[i], 0, 1)
		if w != (window.Window{}) {
			all = append(all, window.Listed{Key: tag[2:], Digest: tag[0] == 'h', Limit: there[i], Window: w})
		}
	}
	b.release(c)
	return all, nil
}

// stored returns the limits of which a hash has a state. Their Max and Burst are those last used.
func (b *Backend) stored(ctx context.Context, name string) (all []window.Limit, err error) {
	n, err := b.nodeOf(name)
	if err != nil {
		return nil, err
	}
	text, err := b.alone(ctx, n, func(ctx context.Context) (string, error) { return b.eval(ctx, fieldsScript, []string{name}, nil) })
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
	l.Scale = time.Duration(scale) * time.Microsecond
	l.Algorithm = window.Algorithm(strings.IndexByte(string(letters[:]), letter))
	if l.Algorithm == window.TokenBucket && holds != l.Max {
		l.Burst = holds
	}
	return l, nil
}
