package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

var (
	_ grpc.UnaryClientInterceptor  = (*grpclimit.Client)(nil).Unary
	_ grpc.StreamClientInterceptor = (*grpclimit.Client)(nil).Stream
)

// provider is somebody else's service, which clients reach through a fake of grpc.ClientConn. It refuses
// calls before the time until, and says so by refuse.
type provider struct {
	conn   *grpc.ClientConn
	mu     sync.Mutex // guards the rest
	until  time.Time
	refuse func(left time.Duration) (metadata.MD, error)
	calls  []time.Duration // since start, of those that were served
	tries  int
	start  time.Time
}

func newProvider(t *testing.T) *provider {
	conn, err := grpc.NewClient("passthrough:///provider", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &provider{conn: conn, start: time.Now(), refuse: func(left time.Duration) (metadata.MD, error) {
		return nil, refusal(codes.ResourceExhausted, retry(left))
	}}
}

// retry returns what says when to try again.
func retry(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

// refusal returns an error with RetryInfo.
func refusal(code codes.Code, info *errdetails.RetryInfo) error {
	st, err := status.New(code, "no").WithDetails(info)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func (p *provider) invoke(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	left := time.Until(p.until)
	if left <= 0 {
		p.calls = append(p.calls, time.Since(p.start))
		return nil
	}
	md, err := p.refuse(left)
	for _, o := range opts {
		if o, ok := o.(grpc.TrailerCallOption); ok {
			*o.TrailerAddr = md
		}
	}
	return err
}

// perSecond takes each call of a limit of 10 a second, which no interval exceeds.
func perSecond(_ context.Context, c grpclimit.Call) []throttr.Take {
	return []throttr.Take{throttr.Limit{Name: "provider", Max: 10, Scale: time.Second, Algorithm: throttr.SlidingLog}.For("provider", 1)}
}

// inBubble runs a test of a Client in a bubble of testing/synctest.
func inBubble(t *testing.T, cfg grpclimit.ClientConfig, f func(t *testing.T, p *provider, call func(context.Context) error)) {
	synctest.Test(t, func(t *testing.T) {
		backend := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
		defer backend.Close()
		if cfg.Takes == nil {
			cfg.Takes = perSecond
		}
		client, p := grpclimit.NewClient(throttr.NewRateLimit(backend), cfg), newProvider(t)
		f(t, p, func(ctx context.Context) error { return client.Unary(ctx, say, nil, nil, p.conn, p.invoke) })
		p.conn.Close()
	})
}

func TestAServiceThatRefusesHoldsBackAllCalls(t *testing.T) {
	for name, refuse := range map[string]func(left time.Duration) (metadata.MD, error){
		"RetryInfo": func(left time.Duration) (metadata.MD, error) { return nil, refusal(codes.Unavailable, retry(left)) },
		"pushback": func(left time.Duration) (metadata.MD, error) {
			return metadata.Pairs("grpc-retry-pushback-ms", "5000"), status.Error(codes.ResourceExhausted, "no")
		},
		"the longer of both": func(left time.Duration) (metadata.MD, error) {
			return metadata.Pairs("grpc-retry-pushback-ms", "5000"),
				refusal(codes.ResourceExhausted, retry(time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, grpclimit.ClientConfig{}, func(t *testing.T, p *provider, call func(context.Context) error) {
				p.until, p.refuse = p.start.Add(5*time.Second), refuse
				var calls sync.WaitGroup
				calls.Go(func() { require.NoError(t, call(t.Context())) })
				time.Sleep(time.Millisecond)
				for range 20 { // these come after the refusal
					calls.Go(func() { require.NoError(t, call(t.Context())) })
				}
				calls.Wait()
				require.Equal(t, 22, p.tries, "the first refusal holds back all")
				require.Len(t, p.calls, 21)
				require.GreaterOrEqual(t, p.calls[0], 5*time.Second)
				require.Less(t, p.calls[20], 8*time.Second)
			})
		})
	}
}

func TestWhatIsNotSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		cfg     grpclimit.ClientConfig
		err     error
		trailer metadata.MD
		tries   int
		took    time.Duration
	}{
		"refused, and nothing more":       {err: status.Error(codes.ResourceExhausted, "no"), tries: 1},
		"another error":                   {err: refusal(codes.Internal, retry(time.Second)), tries: 1},
		"not an error of a service":       {err: io.ErrUnexpectedEOF, tries: 1},
		"pushback says never":             {err: refusal(codes.Unavailable, retry(time.Second)), trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1"), tries: 1},
		"pushback is no number":           {err: refusal(codes.Unavailable, retry(time.Second)), trailer: metadata.Pairs("grpc-retry-pushback-ms", "x"), tries: 1},
		"two pushbacks":                   {err: refusal(codes.Unavailable, retry(time.Second)), trailer: metadata.Pairs("grpc-retry-pushback-ms", "1", "grpc-retry-pushback-ms", "2"), tries: 1},
		"longer than MaxPause":            {err: refusal(codes.Unavailable, retry(61*time.Second)), tries: 1},
		"for ever":                        {err: refusal(codes.Unavailable, &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1 << 62}}), tries: 1},
		"no retries":                      {cfg: grpclimit.ClientConfig{MaxRetries: -1}, err: refusal(codes.Unavailable, retry(time.Second)), tries: 1},
		"the deadline comes before":       {err: refusal(codes.Unavailable, retry(31*time.Second)), tries: 1},
		"a negative delay: sent at once":  {err: refusal(codes.Unavailable, retry(-time.Second)), tries: 4},
		"three retries, and no more":      {err: refusal(codes.Unavailable, retry(time.Second)), tries: 4, took: 3 * time.Second},
		"as many retries as were allowed": {cfg: grpclimit.ClientConfig{MaxRetries: 1}, err: refusal(codes.Unavailable, retry(time.Second)), tries: 2, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, test.cfg, func(t *testing.T, p *provider, call func(context.Context) error) {
				p.until, p.refuse = p.start.Add(time.Hour), func(time.Duration) (metadata.MD, error) { return test.trailer, test.err }
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				require.Equal(t, test.err, call(ctx), "the error is that of the service")
				require.Equal(t, test.tries, p.tries)
				require.InDelta(t, test.took, time.Since(p.start), float64(test.took/10))
			})
		})
	}
}

// A service may hold back calls for as long as it likes.
func TestTheLongestPauseIsKept(t *testing.T) {
	inBubble(t, grpclimit.ClientConfig{MaxPause: math.MaxInt64, MaxRetries: 1}, func(t *testing.T, p *provider, call func(context.Context) error) {
		p.until = p.start.Add(math.MaxInt64)
		ctx, cancel := context.WithTimeout(t.Context(), 10*365*24*time.Hour)
		defer cancel()
		require.Error(t, call(ctx))
		require.Equal(t, codes.DeadlineExceeded, status.Code(call(ctx)))
		require.Equal(t, 1, p.tries)
	})
}

// A refusal of a call that was under way makes the pause that another one has begun no shorter.
func TestAShorterPauseEndsNoLongerOne(t *testing.T) {
	inBubble(t, grpclimit.ClientConfig{MaxRetries: -1}, func(t *testing.T, p *provider, call func(context.Context) error) {
		p.until = p.start.Add(time.Hour)
		pauses := make(chan time.Duration)
		p.refuse = func(time.Duration) (metadata.MD, error) {
			p.mu.Unlock() // another call comes meanwhile
			defer p.mu.Lock()
			return nil, refusal(codes.Unavailable, retry(<-pauses))
		}
		for range 2 {
			go call(t.Context())
		}
		synctest.Wait()
		for _, pause := range []time.Duration{20 * time.Second, time.Second} {
			pauses <- pause
			synctest.Wait()
		}
		close(pauses)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.Equal(t, codes.DeadlineExceeded, status.Code(call(ctx)))
		require.Zero(t, time.Since(p.start))
	})
}

func TestAClientGivesUpWithItsContext(t *testing.T) {
	inBubble(t, grpclimit.ClientConfig{}, func(t *testing.T, p *provider, call func(context.Context) error) {
		p.until = p.start.Add(20 * time.Second)
		go call(t.Context())
		synctest.Wait()

		// The service holds back calls for longer than the deadline: at once.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := call(ctx)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, time.Since(p.start))

		// Canceled while it is held back.
		ctx, cancel = context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		require.Equal(t, codes.Canceled, status.Code(call(ctx)))
		require.Equal(t, time.Second, time.Since(p.start))
	})
}

// A call takes all or none of its limits, and gives back what it has not used.
func TestACallTakesAllOrNone(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	requests := throttr.Limit{Name: "requests", Max: 10, Scale: time.Hour}
	tokens := throttr.Limit{Name: "tokens", Max: 190, Scale: time.Hour}
	limiter, p := throttr.NewRateLimit(backend), newProvider(t)
	client := grpclimit.NewClient(limiter, grpclimit.ClientConfig{
		Takes: func(context.Context, grpclimit.Call) []throttr.Take {
			return []throttr.Take{requests.For("k", 1), tokens.For("k", 60)}
		},
		Used: func(_ context.Context, c grpclimit.Call, reply any, err error) []uint64 {
			require.Equal(t, grpclimit.Call{Method: say, Message: "x"}, c)
			if err != nil {
				return nil
			}
			return []uint64{1, reply.(uint64)}
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	counted := func(want ...uint64) {
		t.Helper()
		for i, l := range []throttr.Limit{requests, tokens} {
			res, err := limiter.Peek(ctx, "k", l, 0)
			require.NoError(t, err)
			require.Equal(t, want[i], res.Count, l.Name)
		}
	}
	require.NoError(t, client.Unary(ctx, say, "x", uint64(5), p.conn, p.invoke))
	counted(1, 5)
	require.NoError(t, client.Unary(ctx, say, "x", uint64(70), p.conn, p.invoke))
	counted(2, 75)
	p.until, p.refuse = time.Now().Add(time.Hour), func(time.Duration) (metadata.MD, error) { return nil, status.Error(codes.Internal, "no") }
	require.Error(t, client.Unary(ctx, say, "x", uint64(0), p.conn, p.invoke))
	counted(3, 135)
	var late *throttr.DeadlineError
	require.ErrorAs(t, client.Unary(ctx, say, "x", uint64(0), p.conn, p.invoke), &late)
	require.Equal(t, "tokens", late.Limit.Name)
	counted(3, 135)
}

// What was granted while the service began to hold back calls is given back.
func TestACallThatIsHeldBackHasTakenNothing(t *testing.T) {
	takes := func(context.Context, grpclimit.Call) []throttr.Take {
		return []throttr.Take{
			throttr.Limit{Name: "second", Max: 1, Scale: time.Second}.For("k", 1),
			throttr.Limit{Name: "hour", Max: 2, Scale: time.Hour}.For("k", 1),
		}
	}
	inBubble(t, grpclimit.ClientConfig{Takes: takes, MaxRetries: -1}, func(t *testing.T, p *provider, call func(context.Context) error) {
		p.until = p.start.Add(10 * time.Second)
		p.refuse = func(left time.Duration) (metadata.MD, error) {
			time.Sleep(500 * time.Millisecond)
			return nil, refusal(codes.ResourceExhausted, retry(left))
		}
		go call(t.Context())
		time.Sleep(time.Millisecond)
		require.NoError(t, call(t.Context())) // it is granted after a second
		require.Less(t, time.Since(p.start), 15*time.Second)
	})
}

func TestCodesOfWaitsThatFail(t *testing.T) {
	take := func(l throttr.Limit, n uint64) func(context.Context, grpclimit.Call) []throttr.Take {
		return func(context.Context, grpclimit.Call) []throttr.Take { return []throttr.Take{l.For("k", n)} }
	}
	minute := throttr.Limit{Max: 10, Scale: time.Minute}
	backend := memory.New()
	defer backend.Close()
	for name, test := range map[string]struct {
		backend throttr.Backend
		takes   func(context.Context, grpclimit.Call) []throttr.Take
		code    codes.Code
		cause   error
	}{
		"never granted": {backend, take(minute, 11), codes.ResourceExhausted, nil},
		"a mistake":     {backend, take(throttr.Limit{Max: 1, Scale: 1}, 1), codes.Internal, throttr.ErrScale},
		"the store":     {testkit.Broken(backend, throttr.ErrUnavailable), take(minute, 1), codes.Unavailable, throttr.ErrUnavailable},
		"overloaded":    {testkit.Broken(backend, throttr.ErrOverloaded), take(minute, 1), codes.ResourceExhausted, throttr.ErrOverloaded},
		"no takes":      {testkit.Broken(backend, throttr.ErrUnavailable), func(context.Context, grpclimit.Call) []throttr.Take { return nil }, codes.OK, nil},
	} {
		p := newProvider(t)
		client := grpclimit.NewClient(throttr.NewRateLimit(test.backend), grpclimit.ClientConfig{Takes: test.takes})
		err := client.Unary(t.Context(), say, nil, nil, p.conn, p.invoke)
		require.Equal(t, test.code, status.Code(err), name)
		require.Equal(t, test.code == codes.OK, p.tries == 1, name)
		if test.cause != nil {
			require.ErrorIs(t, err, test.cause, name)
		}
	}
	require.Panics(t, func() { grpclimit.NewClient(throttr.NewRateLimit(backend), grpclimit.ClientConfig{}) })
}

// Messages of streams wait, too, and a refused stream holds back other calls.
func TestMessagesOfAClientWaitInLine(t *testing.T) {
	backend := memory.New()
	defer backend.Close()
	var taken []uint64
	client := grpclimit.NewClient(throttr.NewRateLimit(backend), grpclimit.ClientConfig{
		Takes: func(_ context.Context, c grpclimit.Call) []throttr.Take {
			n := uint64(1)
			if m, ok := c.Message.(*wrapperspb.StringValue); ok {
				n = uint64(len(m.Value))
			}
			taken = append(taken, n)
			return []throttr.Take{throttr.Limit{Name: "bytes", Max: 10, Scale: time.Hour}.For("k", n)}
		},
	})
	s := newSite(t, grpclimit.Config{Messages: []throttr.Limit{{Name: "messages", Max: 2, Scale: time.Minute}}}, nil,
		grpc.WithChainUnaryInterceptor(client.Unary), grpc.WithChainStreamInterceptor(client.Stream))
	stream, err := s.chat(t.Context())
	require.NoError(t, err)
	require.NoError(t, exchange(stream, "four"))
	require.Equal(t, []uint64{1, 4}, taken)

	err = stream.SendMsg(wrapperspb.String("more than ten"))
	var cost *throttr.CostError
	require.ErrorAs(t, err, &cost)
	require.Equal(t, codes.Canceled, status.Code(stream.RecvMsg(new(wrapperspb.StringValue))), "the error ends the stream")

	stream, err = s.chat(t.Context())
	require.NoError(t, err)
	require.NoError(t, exchange(stream, "x"))
	require.Equal(t, codes.ResourceExhausted, status.Code(exchange(stream, "x")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begun := time.Now()
	_, err = s.say(ctx, "x")
	require.True(t, errors.Is(err, context.DeadlineExceeded), err)
	require.Less(t, time.Since(begun), 5*time.Second, "it fails at once: the pause is a minute")
}

// received is a stream from which a message has come.
type received struct{ grpc.ClientStream }

func (received) RecvMsg(any) error { return nil }

// After CloseAndRecv, grpc-go has released the stream.
func TestTheContextOfAnUploadEndsWithIt(t *testing.T) {
	client := grpclimit.NewClient(throttr.NewRateLimit(memory.New()), grpclimit.ClientConfig{Takes: func(context.Context, grpclimit.Call) []throttr.Take { return nil }})
	var seen context.Context
	upload := &grpc.StreamDesc{StreamName: "Upload", ClientStreams: true}
	streamer := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
		seen = ctx
		return received{}, nil
	}
	stream, err := client.Stream(t.Context(), upload, newProvider(t).conn, "/test.Up/Upload", streamer)
	require.NoError(t, err)
	require.NoError(t, seen.Err())
	require.NoError(t, stream.RecvMsg(nil))
	require.Error(t, seen.Err(), "the call is over, and its context stays a child of its parent")
}
