package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/grpclimit"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/memory"
)

// The methods of the service of grpc's own tests.
const (
	say  = "/grpc.testing.TestService/UnaryCall"
	chat = "/grpc.testing.TestService/FullDuplexCall"
)

// echo is the service: it responds with what it gets. Tests may look at calls with seen.
type echo struct {
	testgrpc.UnimplementedTestServiceServer
	seen func(ctx context.Context) error
}

// UnaryCall responds to a call.
func (e *echo) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{Payload: in.Payload}, e.seen(ctx)
}

// FullDuplexCall responds to each message of a stream.
func (e *echo) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	if err := e.seen(stream.Context()); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if _, again := stream.Recv(); again == nil { // a handler that goes on gets nothing
				return errors.New("received after an error")
			}
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.Payload}); err != nil {
			return err
		}
	}
}

// payload is the text of a message.
func payload(text string) *testgrpc.Payload { return &testgrpc.Payload{Body: []byte(text)} }

// site is a server with limits, and a client of it.
type site struct {
	server *grpclimit.Server
	conn   *grpc.ClientConn
}

// newSite serves the echo until the test ends, on connections in memory, also in virtual time. The default of cfg.Limits
// is 3 a minute.
func newSite(t testing.TB, cfg grpclimit.Config, seen func(context.Context) error, opts ...grpc.DialOption) *site {
	t.Helper()
	if cfg.Limits == nil {
		cfg.Limits = []throttr.Limit{{Name: "minute", Max: 3, Scale: time.Minute}}
	}
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	server, err := grpclimit.NewServer(throttr.NewRateLimit(store), cfg)
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.UnaryInterceptor(server.Unary), grpc.StreamInterceptor(server.Stream))
	testgrpc.RegisterTestServiceServer(srv, &echo{seen: seen})
	network := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(network) }()
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }
	opts = append(opts, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///memory", opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		require.NoError(t, <-served)
	})
	return &site{server, conn}
}

func noError(context.Context) error { return nil }

// say calls Say, and returns the trailers.
func (s *site) say(ctx context.Context, text string) (metadata.MD, error) {
	var trailer metadata.MD
	err := s.conn.Invoke(ctx, say, &testgrpc.SimpleRequest{Payload: payload(text)}, new(testgrpc.SimpleResponse), grpc.Trailer(&trailer))
	return trailer, err
}

// code calls Say, and returns the code of the status.
func (s *site) code(ctx context.Context, text string) codes.Code {
	_, err := s.say(ctx, text)
	return status.Code(err)
}

// unary has a server serve a call, without a network, and returns the code of its status.
func unary(ctx context.Context, s *grpclimit.Server, method string, handler func(context.Context) error) codes.Code {
	info := &grpc.UnaryServerInfo{FullMethod: method}
	_, err := s.Unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) { return nil, handler(ctx) })
	return status.Code(err)
}

// streaming has a server serve a stream, without a network, and returns the code of its status.
func streaming(s *grpclimit.Server, ss grpc.ServerStream, handler func(grpc.ServerStream) error) codes.Code {
	info := &grpc.StreamServerInfo{FullMethod: chat}
	return status.Code(s.Stream(nil, ss, info, func(_ any, ss grpc.ServerStream) error { return handler(ss) }))
}

// chat opens a stream.
func (s *site) chat(ctx context.Context) (grpc.ClientStream, error) {
	return s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, chat)
}

// exchange sends a message, and receives the response.
func exchange(stream grpc.ClientStream, text string) error {
	if err := stream.SendMsg(&testgrpc.StreamingOutputCallRequest{Payload: payload(text)}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return stream.RecvMsg(new(testgrpc.StreamingOutputCallResponse))
}

// count returns what a limit has counted of a key.
func (s *site) count(t *testing.T, key string, l throttr.Limit) uint64 {
	t.Helper()
	outcomes, err := s.server.Peek(t.Context(), admission.Request{Addr: key, Plan: admission.MustPlan(l)})
	require.NoError(t, err)
	return outcomes[0].Count
}

// A flood through a real server and clients: exactly the limit is served.
func TestFloodIsServedUpToTheLimit(t *testing.T) {
	s := newSite(t, grpclimit.Config{
		Limits: []throttr.Limit{{Name: "hour", Max: 500, Scale: time.Hour}, {Name: "day", Max: 800, Scale: 24 * time.Hour}},
	}, noError)
	var calls atomic.Int64
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 60 {
				switch code := s.code(t.Context(), "x"); code {
				case codes.OK:
					calls.Add(1)
				case codes.ResourceExhausted:
				default:
					t.Error(code)
				}
			}
		})
	}
	clients.Wait()
	require.EqualValues(t, 500, calls.Load())
}

func TestDeniedCallTellsAStockClientWhatAndUntilWhen(t *testing.T) {
	synctest.Test(t, testDenial) // it is 2000-01-01T00:00:00Z
}

func testDenial(t *testing.T) {
	cost := uint64(1)
	s := newSite(t, grpclimit.Config{
		Limits: []throttr.Limit{
			{Name: "minute", Max: 2, Scale: time.Minute},
			{Name: "month", Max: 2, Calendar: throttr.Month},
			{Name: "hour", Max: 9, Scale: time.Hour},
		},
		Cost: func(context.Context, grpclimit.Call, throttr.Limit) uint64 { return cost },
	}, noError)
	trailer, err := s.say(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, metadata.MD{"x-ratelimit-remaining": {"1"}, "x-ratelimit-reset": {"2678400"}}, only(trailer))
	require.Equal(t, codes.OK, s.code(t.Context(), "x"))
	time.Sleep(time.Second - time.Nanosecond)

	trailer, err = s.say(t.Context(), "x")
	require.Equal(t, metadata.MD{
		"x-ratelimit-remaining": {"0"}, "x-ratelimit-reset": {"2678400"}, "grpc-retry-pushback-ms": {"2678399001"},
	}, only(trailer))
	st, ok := status.FromError(err)
	require.True(t, ok)
	require.Equal(t, codes.ResourceExhausted, st.Code())
	require.Equal(t, "Too many requests. Try again in 31 days.", st.Message())
	require.Len(t, st.Details(), 2)
	require.Equal(t, 2678399*time.Second+1, st.Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
	quota := st.Details()[1].(*errdetails.QuotaFailure)
	require.Len(t, quota.Violations, 2)
	for i, want := range []struct{ id, text string }{{"minute", "2 in 1m0s"}, {"month", "2 in a month of UTC"}} {
		v := quota.Violations[i]
		require.Equal(t, want.id, v.QuotaId)
		require.Equal(t, want.text, v.Description)
		require.Equal(t, "grpc.testing.TestService", v.ApiService)
		require.Equal(t, "requests", v.QuotaMetric)
		require.EqualValues(t, 2, v.QuotaValue)
		require.Equal(t, map[string]string{"client": "unknown"}, v.QuotaDimensions, "an in-memory connection has no address")
	}

	cost = 10 // waiting does not help
	trailer, err = s.say(t.Context(), "x")
	require.Equal(t, metadata.MD{"grpc-retry-pushback-ms": {"-1"}}, only(trailer))
	require.Len(t, status.Convert(err).Details(), 1, "no RetryInfo")
	cost = 1 << 63
	require.Equal(t, codes.Internal, s.code(t.Context(), "x"), "a mistake in the program")
}

// only returns the trailers of this package.
func only(md metadata.MD) metadata.MD {
	out := metadata.MD{}
	for name, values := range md {
		if strings.HasPrefix(name, "x-ratelimit") || strings.HasPrefix(name, "grpc-retry") {
			out[name] = values
		}
	}
	return out
}

// A client of grpc-go that retries by its service config waits as long as the server says.
func TestStockClientRetriesWhenTheServerSays(t *testing.T) {
	cfg := grpclimit.Config{Limits: []throttr.Limit{{Name: "x", Max: 1, Scale: 200 * time.Millisecond}}}
	s := newSite(t, cfg, noError,
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "1000s",
			"maxBackoff": "1000s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
	for range 3 {
		require.Equal(t, codes.OK, s.code(t.Context(), "x"))
	}
}

func TestMessagesOfAStreamAreCounted(t *testing.T) {
	synctest.Test(t, testMessages) // in which no time passes
}

func testMessages(t *testing.T) {
	messages := throttr.Limit{Name: "bytes", Max: 10, Scale: time.Minute}
	s := newSite(t, grpclimit.Config{
		Methods:  map[string][]throttr.Limit{chat: {{Name: "minute", Max: 3, Scale: time.Minute}}}, // not of its messages
		Messages: []throttr.Limit{messages},
		Metric:   "bytes",
		Cost: func(_ context.Context, c grpclimit.Call, _ throttr.Limit) uint64 {
			if m, ok := c.Message.(interface{ GetPayload() *testgrpc.Payload }); ok {
				return uint64(len(m.GetPayload().GetBody()))
			}
			return 1
		},
	}, noError)
	stream, err := s.chat(t.Context())
	require.NoError(t, err)
	require.NoError(t, exchange(stream, "1234"))
	require.NoError(t, exchange(stream, "123456"))
	err = exchange(stream, "1")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, metadata.MD{
		"x-ratelimit-remaining": {"0"}, "x-ratelimit-reset": {"60"}, "grpc-retry-pushback-ms": {"60000"},
	}, only(stream.Trailer()))
	require.Equal(t, "bytes", status.Convert(err).Details()[1].(*errdetails.QuotaFailure).Violations[0].QuotaMetric)
	require.EqualValues(t, 10, s.count(t, "unknown", messages))
	require.EqualValues(t, 1, s.count(t, "unknown", throttr.Limit{Name: "minute", Max: 3, Scale: time.Minute}), "the stream is one call")

	require.Equal(t, codes.ResourceExhausted, s.code(t.Context(), "123")) // a unary call counts what it costs in Limits
	require.Equal(t, codes.OK, s.code(t.Context(), "12"))
}

// Clients choose their deadlines: one that ends before the call is counted does not let it through.
func TestACallWhoseContextHasEndedIsNotServed(t *testing.T) {
	minute := throttr.Limit{Name: "minute", Max: 1, Scale: time.Minute}
	limiter := throttr.NewRateLimit(memory.New(), throttr.WithPolicy(throttr.AllowHits))
	s, err := grpclimit.NewServer(limiter, grpclimit.Config{Limits: []throttr.Limit{minute}, Messages: []throttr.Limit{minute}})
	require.NoError(t, err)
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for code, ctx := range map[codes.Code]context.Context{codes.DeadlineExceeded: expired, codes.Canceled: canceled} {
		served := func(context.Context) error { t.Error("served"); return nil }
		require.Equal(t, code, unary(ctx, s, say, served))
		require.Equal(t, code, streaming(s, &endingStream{ctx: ctx}, func(ss grpc.ServerStream) error { return served(ctx) }))
		require.Equal(t, code, streaming(s, &endingStream{ctx: t.Context(), then: ctx}, func(ss grpc.ServerStream) error {
			return ss.RecvMsg(nil)
		}), "of a message")
		require.NoError(t, s.Reset(t.Context(), admission.Request{Addr: "unknown"}))
	}
}

// endingStream is a stream whose context ends when a message has come.
type endingStream struct {
	grpc.ServerStream
	ctx, then context.Context
}

func (s *endingStream) Context() context.Context { return s }
func (s *endingStream) SetTrailer(metadata.MD)   {}
func (s *endingStream) RecvMsg(any) error {
	s.ctx = s.then
	return nil
}
func (s *endingStream) Deadline() (time.Time, bool) { return s.ctx.Deadline() }
func (s *endingStream) Done() <-chan struct{}       { return s.ctx.Done() }
func (s *endingStream) Err() error                  { return s.ctx.Err() }
func (s *endingStream) Value(key any) any           { return s.ctx.Value(key) }

func TestMethodsAndPlansHaveLimitsOfTheirOwn(t *testing.T) {
	minute := func(name string, most uint64) []throttr.Limit {
		return []throttr.Limit{{Name: name, Max: most, Scale: time.Minute}}
	}
	pro := admission.MustPlan(minute("pro", 5)...)
	s, err := grpclimit.NewServer(throttr.NewRateLimit(memory.New()), grpclimit.Config{
		Limits: minute("minute", 3),
		Methods: map[string][]throttr.Limit{
			say: minute("say", 1), "/grpc.testing.TestService/": minute("echo", 2),
			"/test.Unlimited/": {}, "/test.Other/Thing": minute("thing", 9),
		},
		Plan: func(ctx context.Context, _ grpclimit.Call) (*admission.Plan, error) {
			switch metadata.ValueFromIncomingContext(ctx, "plan")[0] {
			case "":
				return nil, nil
			case "pro":
				return pro, nil
			}
			return nil, errors.New("unknown")
		},
	})
	require.NoError(t, err)
	for _, test := range []struct {
		method, plan string
		want         int
	}{
		{say, "", 1}, {say, "pro", 5}, {say, "x", 0}, // that is not known: the limits of the method apply
		{"/test.Unlimited/Any", "", 10}, {"/test.Other/Thing", "", 9}, {"/test.Other/Else", "", 3},
		{"", "", 0}, // the limits of all calls are used up
	} {
		n := 0
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("plan", test.plan))
		for range 10 {
			unary(ctx, s, test.method, func(context.Context) error { n++; return nil })
		}
		require.Equal(t, test.want, n, test.method)
	}
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("plan", ""))
	for _, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} { // those of the service
		stream := &endingStream{ctx: ctx, then: ctx}
		require.Equal(t, want, streaming(s, stream, func(ss grpc.ServerStream) error { return ss.RecvMsg(nil) }))
	}
}

func TestSkippedCallsAreNotCounted(t *testing.T) {
	for name, cfg := range map[string]grpclimit.Config{
		"Skip":         {Skip: func(_ context.Context, c grpclimit.Call) bool { return c.Method == say || c.Method == chat }},
		"an empty key": {SkipEmptyKey: true, Key: func(context.Context, grpclimit.Call) string { return "" }},
		"an empty plan": {
			Plan: func(context.Context, grpclimit.Call) (*admission.Plan, error) { return new(admission.Plan), nil },
			// a key of Messages, so that only the plan exempts them
			KeyOf: map[string]grpclimit.KeyFunc{"messages": grpclimit.Everyone, "minute": grpclimit.Peer},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Messages = []throttr.Limit{{Name: "messages", Max: 1, Scale: time.Minute}}
			s := newSite(t, cfg, func(ctx context.Context) error {
				if _, ok := admission.FromContext(ctx); ok {
					return errors.New("there is a decision")
				}
				return nil
			})
			stream, err := s.chat(t.Context())
			require.NoError(t, err)
			for range 10 {
				trailer, err := s.say(t.Context(), "x")
				require.NoError(t, err)
				require.Empty(t, only(trailer))
				require.NoError(t, exchange(stream, "x"))
			}
		})
	}
}

// Calls, and the messages of streams, have a key for each limit, and what failed is given back.
func TestLimitsHaveKeysOfTheirOwn(t *testing.T) {
	synctest.Test(t, testKeys) // so that what is given back in the background is there for the next call
}

func testKeys(t *testing.T) {
	hour := func(name string, most uint64) throttr.Limit {
		return throttr.Limit{Name: name, Max: most, Scale: time.Hour}
	}
	plain := map[string]string{}
	limiter := throttr.NewRateLimit(memory.New(memory.WithCleanPeriod(0)), throttr.WithObserver(func(_ context.Context, e throttr.Event) { plain[e.Limit.Name] = e.Key }))
	byAddr, err := grpclimit.ByAddr(admission.AddrConfig{})
	require.NoError(t, err)
	s, err := grpclimit.NewServer(limiter, grpclimit.Config{
		Limits:   []throttr.Limit{hour("address", 9), hour("user", 2), hour("all", 100), hour("peer", 100)},
		Messages: []throttr.Limit{hour("messages", 1)},
		KeyOf: map[string]grpclimit.KeyFunc{
			"address": byAddr, "user": grpclimit.ByMetadata("user"), "all": grpclimit.Everyone, "peer": grpclimit.Peer, "messages": grpclimit.ByMetadata("user"),
		},
		GiveBack: func(_ context.Context, c grpclimit.Call, code codes.Code) bool {
			return code == codes.NotFound || code == codes.Internal || code == codes.DeadlineExceeded || code == codes.Canceled
		},
	})
	require.NoError(t, err)
	as := func(user string) context.Context {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}})
		if user == "" {
			return ctx
		}
		return metadata.NewIncomingContext(ctx, metadata.Pairs("user", user))
	}
	call := func(user string, handler func(context.Context) error) codes.Code {
		defer func() { _ = recover() }()
		return unary(as(user), s, say, handler)
	}
	notFound := func(context.Context) error { return status.Error(codes.NotFound, "") }
	for range 3 {
		require.Equal(t, codes.NotFound, call("ann", notFound))
		call("ann", func(context.Context) error { panic("x") })
		call("ann", func(context.Context) error { return context.DeadlineExceeded }) // clients get its code
		ann := &endingStream{ctx: as("ann")}
		require.Equal(t, codes.NotFound, streaming(s, ann, func(ss grpc.ServerStream) error { return notFound(nil) }))
	}
	require.Equal(t, "client:k192.0.2.1", plain["address"])
	require.Equal(t, "client:k192.0.2.1", plain["peer"])
	require.Equal(t, "client:keveryone", plain["all"])
	require.Equal(t, "client:h"+admission.Digest("user:"+admission.Digest("ann")), plain["user"])
	for _, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		require.Equal(t, want, call("ann", noError))
	}
	require.Equal(t, codes.OK, call("", noError), "nobody has no limit of users")
	for user, want := range map[string][]codes.Code{"bob": {codes.OK, codes.ResourceExhausted}, "": {codes.OK, codes.OK}} {
		stream := &endingStream{ctx: as(user), then: as(user)}
		require.Equal(t, want[1], streaming(s, stream, func(ss grpc.ServerStream) error {
			require.Equal(t, want[0], status.Code(ss.RecvMsg(nil)))
			return ss.RecvMsg(nil)
		}), user)
	}
	ctx, cancel := context.WithCancel(as("eve"))
	defer cancel()
	code := codes.OK
	for range 3 { // a client that leaves can't choose that its call counts nothing
		code = unary(ctx, s, say, func(context.Context) error { cancel(); return notFound(nil) })
	}
	require.Equal(t, codes.Canceled, code)
	eve := admission.Request{Plan: admission.MustPlan(hour("user", 2)), Keys: map[string]admission.Key{"user": {Text: "user:" + admission.Digest("eve")}}}
	outcomes, err := s.Peek(t.Context(), eve)
	require.NoError(t, err)
	require.EqualValues(t, 1, outcomes[0].Count)
	require.Equal(t, "client:h"+admission.Digest("user:"+admission.Digest("ann")), s.StoredKey(admission.Key{Text: "user:" + admission.Digest("ann")}))
}

func TestKeysOfCalls(t *testing.T) {
	at := func(addr net.Addr, md ...string) context.Context {
		return peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.Pairs(md...)), &peer.Peer{Addr: addr})
	}
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }
	proxied, err := grpclimit.ByAddr(admission.AddrConfig{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, UnixProxy: true, Header: "X-Forwarded-For"})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		key  grpclimit.KeyFunc
		ctx  context.Context
		want string
	}{
		"an address":          {grpclimit.Peer, at(tcp("192.0.2.1")), "192.0.2.1"},
		"no peer":             {grpclimit.Peer, t.Context(), "unknown"},
		"no address":          {grpclimit.Peer, at(nil), "unknown"},
		"a proxy":             {proxied, at(tcp("10.0.0.1"), "x-forwarded-for", "1.1.1.1", "x-forwarded-for", "192.0.2.1, 10.0.0.2"), "192.0.2.1"},
		"a proxy on a socket": {proxied, at(&net.UnixAddr{Name: "", Net: "unix"}, "x-forwarded-for", "192.0.2.1"), "192.0.2.1"},
		"metadata":            {grpclimit.ByMetadata("X-Api-Key"), at(nil, "x-api-key", "k"), "x-api-key:" + admission.Digest("k")},
		"empty metadata":      {grpclimit.ByMetadata("X-Api-Key"), at(nil, "x-api-key", ""), ""},
	} {
		require.Equal(t, test.want, test.key(test.ctx, grpclimit.Call{Method: say}), name)
	}
	_, err = grpclimit.ByAddr(admission.AddrConfig{Header: "X-Forwarded-For"})
	require.ErrorIs(t, err, throttr.ErrConfig)
}

func TestNewServerRefusesInvalidConfig(t *testing.T) {
	limiter := throttr.NewRateLimit(memory.New())
	minute := []throttr.Limit{{Name: "minute", Max: 3, Scale: time.Minute}}
	for text, cfg := range map[string]grpclimit.Config{
		"Limits is empty": {},
		`KeyOf has "hour", and no limit has the name`:  {Limits: minute, KeyOf: map[string]grpclimit.KeyFunc{"hour": grpclimit.Everyone}},
		`KeyOf has "", and no limit has the name`:      {Limits: minute, Plan: func(context.Context, grpclimit.Call) (*admission.Plan, error) { return nil, nil }, KeyOf: map[string]grpclimit.KeyFunc{"": grpclimit.Everyone}},
		`"minute" has no key`:                          {Limits: minute, Plan: func(context.Context, grpclimit.Call) (*admission.Plan, error) { return nil, nil }, KeyOf: map[string]grpclimit.KeyFunc{"hour": grpclimit.Everyone}},
		"CountRefusals":                                {Limits: minute, CountRefusals: true, GiveBack: func(context.Context, grpclimit.Call, codes.Code) bool { return true }},
		"no Header":                                    {Limits: minute, Addr: admission.AddrConfig{Hops: 1}},
		"has no name":                                  {Limits: minute, Messages: []throttr.Limit{{Max: 1, Scale: time.Second}}},
		`Methods has "Say", which is neither a method`: {Limits: minute, Methods: map[string][]throttr.Limit{"Say": minute}},
		`has "/Say"`:                                   {Limits: minute, Methods: map[string][]throttr.Limit{"/Say": minute}},
		`two limits are named "minute" (of /a.B/C)`:    {Limits: minute, Methods: map[string][]throttr.Limit{"/a.B/C": append(minute, minute...)}},
		`"b" has no key of its own, as others have (of /a.B/C)`: {
			Limits: minute, Plan: func(context.Context, grpclimit.Call) (*admission.Plan, error) { return nil, nil },
			KeyOf:   map[string]grpclimit.KeyFunc{"minute": grpclimit.Everyone},
			Methods: map[string][]throttr.Limit{"/a.B/C": {{Name: "b", Max: 3, Scale: time.Minute}}},
		},
	} {
		_, err := grpclimit.NewServer(limiter, cfg)
		require.ErrorIs(t, err, throttr.ErrConfig, text)
		require.ErrorContains(t, err, text)
	}
	require.PanicsWithValue(t, "grpclimit: NewServer: limiter is nil", func() { grpclimit.NewServer(nil, grpclimit.Config{}) })
}

// Details are texts in UTF-8; a key need not be one. Trailers can be hidden.
func TestDetailsOfAKeyThatIsNoText(t *testing.T) {
	s := newSite(t, grpclimit.Config{HideTrailers: true, PlainKeys: true, Key: func(ctx context.Context, _ grpclimit.Call) string {
		return metadata.ValueFromIncomingContext(ctx, "id-bin")[0]
	}}, noError)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "id-bin", "\xff\xfe")
	var err error
	for range 4 {
		var trailer metadata.MD
		trailer, err = s.say(ctx, "x")
		require.Empty(t, only(trailer))
	}
	require.Error(t, err)
	require.NotEmpty(t, status.Convert(err).Details(), "%v", err)
}

// exports is one call at a time of a client.
var exports = inflight.Limit{Name: "exports", Max: 1, Lease: time.Second}

// service serves the echo in a bubble, of clients that may have one call in flight.
type service struct {
	*site
	t      *testing.T
	places *inflight.Limiter
}

func newService(t *testing.T, cfg grpclimit.Config, seen func(context.Context) error) *service {
	store := memory.New(memory.WithClock(time.Now), memory.WithCleanPeriod(0))
	cfg.InFlight = exports
	cfg.Places = inflight.New(testkit.Broken(store, nil), inflight.WithLogger(nil))
	t.Cleanup(func() { cfg.Places.Close() })
	cfg.Key = grpclimit.Everyone
	cfg.KeyOf = map[string]grpclimit.KeyFunc{"exports": grpclimit.Everyone}
	return &service{newSite(t, cfg, seen), t, cfg.Places}
}

// inUse returns how many places are held, after everything has happened that can.
func (s *service) inUse() uint64 {
	synctest.Wait()
	state, err := s.places.Peek(s.t.Context(), "client:keveryone", exports)
	require.NoError(s.t, err)
	return state.InUse
}

// A stream goes on for much longer than a lease. Then it ends in one of the ways in which streams end.
func TestAStreamHoldsItsPlaceUntilItEnds(t *testing.T) {
	for name, end := range map[string]func(s *service, stream grpc.ClientStream, cancel func()){
		"closed":        func(_ *service, stream grpc.ClientStream, _ func()) { stream.CloseSend() },
		"canceled":      func(_ *service, _ grpc.ClientStream, cancel func()) { cancel() },
		"disconnected":  func(s *service, _ grpc.ClientStream, _ func()) { s.conn.Close() },
		"handler fails": func(_ *service, stream grpc.ClientStream, _ func()) { exchange(stream, "the second message") },
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			s := newService(t, grpclimit.Config{Messages: []throttr.Limit{{Name: "messages", Max: 1, Scale: time.Hour}}}, noError)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := s.chat(ctx)
			require.NoError(t, err)
			require.NoError(t, exchange(stream, "hi"))
			time.Sleep(20 * exports.Lease)
			require.EqualValues(t, 1, s.inUse())
			require.Equal(t, codes.ResourceExhausted, s.code(t.Context(), "hi"))
			end(s, stream, cancel)
			require.Zero(t, s.inUse())
		})
	}
}

func TestACallHoldsItsPlaceUntilItsHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		s := newService(t, grpclimit.Config{}, func(context.Context) error { <-end; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Equal(t, codes.DeadlineExceeded, s.code(ctx, "hi"))
		require.EqualValues(t, 1, s.inUse(), "the handler does not notice, and works")
		close(end)
		require.Zero(t, s.inUse())
		mistake := func() error { panic("mistake") }
		require.Panics(t, func() { unary(t.Context(), s.server, say, func(context.Context) error { return mistake() }) })
		require.Zero(t, s.inUse())
		require.Panics(t, func() {
			streaming(s.server, &endingStream{ctx: t.Context()}, func(grpc.ServerStream) error { return mistake() })
		})
		require.Zero(t, s.inUse())
	})
}

func TestTheStatusWithoutAPlace(t *testing.T) {
	for verdict, code := range map[admission.Verdict]codes.Code{
		0: codes.ResourceExhausted, admission.Deny: codes.ResourceExhausted, admission.Unavailable: codes.Unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, grpclimit.Config{NoPlace: verdict}, noError)
			held, ok, err := s.places.TryAcquire(t.Context(), "client:keveryone", exports, 1)
			require.NoError(t, err)
			require.True(t, ok)
			trailer, err := s.say(t.Context(), "hi")
			require.Equal(t, code, status.Code(err))
			require.Equal(t, []string{"0"}, trailer.Get("x-ratelimit-remaining"))
			require.Equal(t, []string{"1"}, trailer.Get("x-ratelimit-reset"))
			require.Equal(t, []string{"1000"}, trailer.Get("grpc-retry-pushback-ms"))
			details := status.Convert(err).Details()
			require.Equal(t, time.Second, details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
			if code == codes.ResourceExhausted {
				v := details[1].(*errdetails.QuotaFailure).Violations[0]
				require.Equal(t, []any{"exports", "1 at a time", "concurrent-requests", int64(1)}, []any{v.QuotaId, v.Description, v.QuotaMetric, v.QuotaValue})
			}
			held.Release()
			require.Equal(t, codes.OK, s.code(t.Context(), "hi"))
			require.Zero(t, s.inUse())
		})
	}
}
