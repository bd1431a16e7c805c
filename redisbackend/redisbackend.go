package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/throttr-go/throttr/window"
)

const (
	// MaxCount is the largest limit, increment and count that the backend takes, 2^53-1. A
	// count that increments take beyond it stays at 2^53, which is over every limit.
	MaxCount = 1<<53 - 1
	// MaxScale is the longest window, 142 years.
	MaxScale = maxTime * time.Microsecond

	// maxTime bounds what a script computes with, in microseconds: the sum of two is exact
	// in a double. It lasts to the year 2112.
	maxTime = 1 << 52
)

var (
	// ErrScale says that a window's length is not a whole number of microseconds from 1 to
	// [MaxScale]. Redis tells the time in microseconds.
	ErrScale = errors.New("redisbackend: scale must be a whole number of microseconds, and at most 142 years")
	// ErrRange says that a limit, an increment or a count is over [MaxCount], from where on
	// Redis' scripts don't count exactly; or that the clock of [WithClock] is more than 142
	// years away from 1970.
	ErrRange = errors.New("redisbackend: number is too large")
)

// Backend is a [window.Backend] on Redis. Make one with [New].
type Backend struct {
	options
	client rueidis.Client
}

var _ window.Backend = (*Backend)(nil)

// New returns a backend that keeps its windows where client is connected to. The client
// remains the caller's, to use otherwise and to close.
func New(client rueidis.Client, opts ...Option) *Backend {
	b := &Backend{options: options{prefix: DefaultPrefix}, client: client}
	for _, opt := range opts {
		opt(&b.options)
	}
	return b
}

// Hit implements [window.Backend]. Every hit is counted. The error matches that of ctx,
// [ErrScale] or [ErrRange], or it is the client's.
func (b *Backend) Hit(ctx context.Context, key string, scale time.Duration, limit, increment uint64) (window.Window, error) {
	if err := checkCount("hit", key, "limit", limit); err != nil {
		return window.Window{}, err
	}
	return b.write(ctx, hitScript, "hit", key, scale, "increment", increment)
}

// Inc implements [window.Backend]. The error is as with Hit.
func (b *Backend) Inc(ctx context.Context, key string, scale time.Duration, increment uint64) (window.Window, error) {
	return b.write(ctx, hitScript, "inc", key, scale, "increment", increment)
}

// Set implements [window.Backend]. The error is as with Hit.
func (b *Backend) Set(ctx context.Context, key string, scale time.Duration, count uint64) (window.Window, error) {
	return b.write(ctx, setScript, "set", key, scale, "count", count)
}

// Get implements [window.Backend]. The error is as with Hit.
func (b *Backend) Get(ctx context.Context, key string, scale time.Duration) (window.Window, error) {
	field, err := fieldOf("get", key, scale)
	if err != nil {
		return window.Window{}, err
	}
	now, err := b.time("get", key)
	if err != nil {
		return window.Window{}, err
	}
	w, err := b.window(ctx, getScript, key, scale, field, now)
	if err != nil {
		return window.Window{}, failed("get", key, err)
	}
	return w, nil
}

// Reset implements [window.Backend]. The error is as with Hit.
func (b *Backend) Reset(ctx context.Context, key string, scale time.Duration) error {
	field, err := fieldOf("reset", key, scale)
	if err != nil {
		return err
	}
	err = b.do(ctx, func(ctx context.Context) rueidis.RedisResult {
		return b.client.Do(ctx, b.client.B().Hdel().Key(b.name(key)).Field(field).Build())
	}).Error()
	if err != nil {
		return failed("reset", key, err)
	}
	return nil
}

// Delete implements [window.Backend]. Without scales it finds those of every client. The
// windows are deleted in one step. The error is as with Hit.
func (b *Backend) Delete(ctx context.Context, key string, scales ...time.Duration) (int, error) {
	now, err := b.time("delete", key)
	if err != nil {
		return 0, err
	}
	args := []string{now}
	for _, scale := range scales {
		field, err := fieldOf("delete", key, scale)
		if err != nil {
			return 0, err
		}
		args = append(args, field)
	}
	n, err := b.exec(ctx, deleteScript, key, args...).AsInt64()
	if err != nil {
		return 0, failed("delete", key, err)
	}
	return int(n), nil
}

// write runs a script that ends in an active window. Number is what n is called.
func (b *Backend) write(ctx context.Context, s *rueidis.Lua, what, key string, scale time.Duration, number string, n uint64) (window.Window, error) {
	field, err := fieldOf(what, key, scale)
	if err != nil {
		return window.Window{}, err
	}
	if err := checkCount(what, key, number, n); err != nil {
		return window.Window{}, err
	}
	now, err := b.time(what, key)
	if err != nil {
		return window.Window{}, err
	}
	aligned := "0"
	if b.algorithm == window.Aligned {
		aligned = "1"
	}
	w, err := b.window(ctx, s, key, scale, field, now, aligned, b.grace(), strconv.FormatUint(n, 10))
	if err != nil {
		return window.Window{}, failed(what, key, err)
	}
	return w, nil
}

// window runs a script that returns a window: count, start, time and last update, the last
// left out if it is the time, or nothing.
func (b *Backend) window(ctx context.Context, s *rueidis.Lua, key string, scale time.Duration, args ...string) (window.Window, error) {
	reply, err := b.exec(ctx, s, key, args...).AsIntSlice()
	if err != nil || len(reply) == 0 {
		return window.Window{}, err
	}
	if len(reply) < 3 {
		return window.Window{}, fmt.Errorf("script returned %v", reply)
	}
	start, now := reply[1], reply[2]
	end := start + scale.Microseconds()
	return window.Window{
		Count:     uint64(reply[0]),
		ExpiresAt: time.UnixMicro(end),
		Left:      time.Duration(end-now) * time.Microsecond,
		StartedAt: time.UnixMicro(start),
		UpdatedAt: time.UnixMicro(reply[len(reply)-1]),
	}, nil
}

// exec runs a script on the key's hash.
func (b *Backend) exec(ctx context.Context, s *rueidis.Lua, key string, args ...string) rueidis.RedisResult {
	return b.do(ctx, func(ctx context.Context) rueidis.RedisResult {
		return s.Exec(ctx, b.client, []string{b.name(key)}, args)
	})
}

// do makes a call, and leaves it when ctx ends. The client by itself waits on where it
// dials, where its queue is full, and where ctx has a deadline too; and whoever leaves
// while it dials fails the others who wait for the connection.
func (b *Backend) do(ctx context.Context, call func(context.Context) rueidis.RedisResult) rueidis.RedisResult {
	if err := ctx.Err(); err != nil {
		return rueidis.NewErrorResult(err)
	}
	if ctx.Done() == nil {
		return call(ctx)
	}
	result := make(chan rueidis.RedisResult, 1)
	go func() { result <- call(context.WithoutCancel(ctx)) }()
	select {
	case r := <-result:
		return r
	case <-ctx.Done():
		return rueidis.NewErrorResult(ctx.Err())
	}
}

// time returns a script's argument for the time: empty for the server's.
func (b *Backend) time(what, key string) (string, error) {
	if b.now == nil {
		return "", nil
	}
	now := b.now()
	micros := now.UnixMicro()
	if micros < -maxTime || micros > maxTime {
		return "", fmt.Errorf("%w: %s %.64q: the clock says %v", ErrRange, what, key, now)
	}
	return strconv.FormatInt(micros, 10), nil
}

// grace returns for how many milliseconds a hash is kept after its last window. Redis looks
// at its clock more than once while a script runs; and another clock may be late.
func (b *Backend) grace() string {
	if b.now != nil {
		return "3600000"
	}
	return "1000"
}

// fieldOf returns the name of a scale's field.
func fieldOf(what, key string, scale time.Duration) (string, error) {
	if scale <= 0 || scale%time.Microsecond != 0 || scale > MaxScale {
		return "", fmt.Errorf("%w: %s %.64q: it is %v", ErrScale, what, key, scale)
	}
	return strconv.FormatInt(scale.Microseconds(), 10), nil
}

func checkCount(what, key, number string, n uint64) error {
	if n > MaxCount {
		return fmt.Errorf("%w: %s %.64q: the %s is %d, over 2^53-1", ErrRange, what, key, number, n)
	}
	return nil
}

// failed says what was asked. A long key is cut.
func failed(what, key string, err error) error {
	return fmt.Errorf("redisbackend: %s %.64q: %w", what, key, err)
}
