package grpclimit

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/outage"
)

// ClientConfig configures a [Client]. Takes is required.
type ClientConfig struct {
	// Takes returns what a call takes of the limits of the service, or the most that it may, or what a message
	// that is sent on a stream does. It waits until all are granted. With no takes, it does not wait.
	//
	// Choose limits that keep the service's own in any interval: a sliding log, or a token bucket whose burst
	// and rate together stay within them. Fixed windows allow twice as much around the end of a window.
	Takes func(context.Context, Call) []throttr.Take

	// Used returns what a unary call has really used of each of its takes, in their order: the rest is given
	// back, and what is more is counted. The error is that of the call. Default, and without numbers: the takes.
	Used func(ctx context.Context, c Call, reply any, err error) []uint64

	// MaxRetries is how often a unary call is sent again that the service has refused with a RetryInfo or
	// grpc-retry-pushback-ms. Default: 3. Negative: never.
	MaxRetries int

	// MaxPause is the longest time for which a service can hold back calls. A call that should wait for
	// longer is not sent again. Default: one minute.
	MaxPause time.Duration
}

// Client keeps the calls of a gRPC client within the limits of a service, together with all processes that
// share the RateLimit: calls wait in line, see [throttr.RateLimit.WaitAll]. It is safe for concurrent use.
//
//	limit := grpclimit.NewClient(limiter, grpclimit.ClientConfig{Takes: …})
//	conn, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(limit.Unary), grpc.WithChainStreamInterceptor(limit.Stream))
//
// If the service refuses a call (RESOURCE_EXHAUSTED or UNAVAILABLE) and says for how long, by a RetryInfo or
// by the trailer grpc-retry-pushback-ms, the Client holds back all calls of this process to the same target
// until then, and up to a tenth longer, by chance. Then it sends a unary call again.
//
// A call whose context ends first fails at once: it is not sent, or fails with the error of the service.
// Errors of the Client have a status: DEADLINE_EXCEEDED, CANCELED, RESOURCE_EXHAUSTED if too many wait
// (throttr.ErrOverloaded) or a limit can never grant it (a [*throttr.CostError]), INTERNAL if it can't be
// kept, and UNAVAILABLE if the store of the RateLimit has failed. errors.Is and errors.As find the cause.
type Client struct {
	cfg     ClientConfig
	limiter *throttr.RateLimit

	mu     sync.Mutex           // guards paused
	paused map[string]time.Time // by target, until when
}

// longestPause bounds ClientConfig.MaxPause, so that what is added to a pause does not overflow.
const longestPause = 100 * 365 * 24 * time.Hour

// NewClient returns a Client. It panics if limiter or cfg.Takes is nil.
func NewClient(limiter *throttr.RateLimit, cfg ClientConfig) *Client {
	if limiter == nil || cfg.Takes == nil {
		panic("grpclimit: NewClient: limiter or Takes is nil")
	}
	cfg.MaxRetries = cmp.Or(cfg.MaxRetries, 3)
	cfg.MaxPause = min(cmp.Or(cfg.MaxPause, time.Minute), longestPause)
	return &Client{cfg: cfg, limiter: limiter, paused: make(map[string]time.Time)}
}

// Unary is a [grpc.UnaryClientInterceptor].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for try := 0; ; try++ {
		call := Call{method, req}
		rv, err := c.wait(ctx, cc.Target(), call)
		if err != nil {
			return err
		}
		var trailer metadata.MD
		err = invoker(ctx, method, req, reply, cc, append(opts[:len(opts):len(opts)], grpc.Trailer(&trailer))...)
		if c.cfg.Used != nil {
			rv.Commit(ctx, c.cfg.Used(ctx, call, reply, err)...) // an error is for the observer of the RateLimit
		}
		pause, again := pauseOf(err, trailer)
		c.pause(cc.Target(), pause)
		if !again || pause > c.cfg.MaxPause || try >= c.cfg.MaxRetries || endsWithin(ctx, pause) {
			return err
		}
	}
}

// Stream is a [grpc.StreamClientInterceptor].
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if _, err := c.wait(ctx, cc.Target(), Call{Method: method}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cs, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &clientStream{ClientStream: cs, client: c, ctx: ctx, cancel: cancel, target: cc.Target(), method: method,
		one: !desc.ServerStreams}, nil
}

// clientStream is a stream whose messages wait in line.
type clientStream struct {
	grpc.ClientStream
	client         *Client
	ctx            context.Context
	cancel         context.CancelFunc
	target, method string
	one            bool // the service sends one message, after which the call has ended
}

// SendMsg waits until a message may be sent, and sends it. An error of the wait ends the stream.
func (s *clientStream) SendMsg(m any) error {
	if _, err := s.client.wait(s.ctx, s.target, Call{s.method, m}); err != nil {
		s.cancel()
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives a message. If the service has ended the stream and says for how long not to call it
// again, other calls are held back.
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		pause, _ := pauseOf(err, s.Trailer())
		s.client.pause(s.target, pause)
	}
	if err != nil || s.one {
		s.cancel()
	}
	return err
}

// wait waits until the service does not hold back calls, and all that a call takes is granted.
func (c *Client) wait(ctx context.Context, target string, call Call) (*throttr.Reservation, error) {
	for {
		if err := c.ready(ctx, target); err != nil {
			return nil, waitErrorOf(ctx, err)
		}
		rv, err := c.limiter.WaitAll(ctx, c.cfg.Takes(ctx, call)...)
		if err != nil {
			return nil, waitErrorOf(ctx, err)
		}
		if c.pauseLeft(target) == 0 {
			return rv, nil
		}
		rv.Cancel(ctx) // the service has refused another call meanwhile
	}
}

// ready waits until the service does not hold back calls.
func (c *Client) ready(ctx context.Context, target string) error {
	for left := c.pauseLeft(target); left > 0; left = c.pauseLeft(target) {
		left += rand.N(left/10 + 1)
		if endsWithin(ctx, left) {
			return context.DeadlineExceeded
		}
		if err := outage.Sleep(ctx, left); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// pause holds back calls to a target for d.
func (c *Client) pause(target string, d time.Duration) {
	if d <= 0 {
		return
	}
	now := time.Now()
	until := now.Add(min(d, c.cfg.MaxPause))
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.paused, func(_ string, until time.Time) bool { return !until.After(now) })
	if until.After(c.paused[target]) {
		c.paused[target] = until
	}
}

// pauseLeft returns for how long calls to a target are held back, 0 if they are not.
func (c *Client) pauseLeft(target string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Until(c.paused[target]))
}

// endsWithin reports whether the deadline of ctx comes before d has passed.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}
