package grpclimit

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// Server limits the calls of a gRPC server. Make one with [NewServer]. It is safe for concurrent use.
type Server struct {
	cfg      Config
	calls    *admission.Gate
	messages *admission.Gate            // or nil
	methods  map[string]*admission.Plan // by the name of a method or a service
}

// NewServer returns a Server, whose interceptors limit calls. It panics if limiter is nil.
//
// The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale], [throttr.ErrRange] or
// [throttr.ErrUnsupported] if a backend can't keep one of the limits. Check the plans that Config.Plan
// returns with [admission.Plan.Check].
func NewServer(limiter *throttr.RateLimit, cfg Config) (*Server, error) {
	if limiter == nil {
		panic("grpclimit: NewServer: limiter is nil")
	}
	cfg.setDefaults()
	s := &Server{cfg: cfg}
	var err error
	calls := cfg.admission(cfg.Limits)
	calls.InFlight, calls.Places, calls.NoPlace = cfg.InFlight, cfg.Places, cfg.NoPlace
	if s.calls, err = admission.New(limiter, calls); err != nil {
		return nil, err
	}
	if len(cfg.Messages) > 0 {
		if s.messages, err = admission.New(limiter, cfg.admission(cfg.Messages)); err != nil {
			return nil, err
		}
	}
	if s.methods, err = cfg.plans(limiter); err != nil {
		return nil, err
	}
	return s, nil
}

// Peek returns the state of limits of a key without counting, see [admission.Gate.Peek].
func (s *Server) Peek(ctx context.Context, key string, limits ...throttr.Limit) ([]admission.Outcome, error) {
	return s.calls.Peek(ctx, key, limits...)
}

// Reset ends the windows of a key, see [admission.Gate.Reset].
func (s *Server) Reset(ctx context.Context, key string, limits ...throttr.Limit) error {
	return s.calls.Reset(ctx, key, limits...)
}

// Unary is a [grpc.UnaryServerInterceptor].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	c := Call{info.FullMethod, req}
	d := s.admit(ctx, c, s.cfg.Key)
	if d == nil {
		return handler(ctx, req)
	}
	defer d.Done()
	if md := s.trailer(d); md != nil {
		_ = grpc.SetTrailer(ctx, md) // it fails if the call does not come over a network
	}
	if err := s.refusal(ctx, c, d); err != nil {
		return nil, err
	}
	return handler(d.Context(), req)
}

// admit counts a call. It returns nil for one that is not counted.
func (s *Server) admit(ctx context.Context, c Call, key KeyFunc) *admission.Decision {
	if s.cfg.Skip(ctx, c) {
		return nil
	}
	k, plan := key(ctx, c), s.planOf(ctx, c)
	if k == "" && s.cfg.SkipEmptyKey || plan != nil && plan.Empty() {
		return nil
	}
	return s.calls.Admit(ctx, k, plan, s.cfg.Cost(ctx, c))
}

// planOf returns the plan of a call, or nil for that of Config.Limits.
func (s *Server) planOf(ctx context.Context, c Call) *admission.Plan {
	if plan := s.cfg.Plan(ctx, c); plan != nil || len(s.methods) == 0 {
		return plan
	}
	if plan := s.methods[c.Method]; plan != nil {
		return plan
	}
	return s.methods[c.Method[:strings.LastIndexByte(c.Method, '/')+1]]
}

// Stream is a [grpc.StreamServerInterceptor].
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, c, key := ss.Context(), Call{Method: info.FullMethod}, ""
	d := s.admit(ctx, c, func(ctx context.Context, c Call) string {
		key = s.cfg.Key(ctx, c)
		return key
	})
	if d == nil {
		return handler(srv, ss)
	}
	defer d.Done()
	st := &stream{ServerStream: ss, server: s, ctx: d.Context(), call: c, key: key}
	st.last.Store(d)
	defer st.setTrailer()
	if err := s.refusal(ctx, c, d); err != nil {
		return err
	}
	return handler(srv, st)
}

// stream is a stream whose messages are counted.
type stream struct {
	grpc.ServerStream
	server *Server
	ctx    context.Context
	call   Call
	key    string
	last   atomic.Pointer[admission.Decision] // the last one: handlers may leave goroutines that receive
	denied atomic.Pointer[error]              // that of a message
}

// Context returns the context of the stream, with the decision.
func (st *stream) Context() context.Context { return st.ctx }

// RecvMsg receives a message, and returns an error if it exceeds a limit.
func (st *stream) RecvMsg(m any) error {
	if err := st.denied.Load(); err != nil {
		return *err
	}
	if err := st.ServerStream.RecvMsg(m); err != nil || st.server.messages == nil {
		return err
	}
	c := st.call
	c.Message = m
	d := st.server.messages.Admit(st.ctx, st.key, nil, st.server.cfg.Cost(st.ctx, c))
	defer d.Done()
	st.last.Store(d)
	err := st.server.refusal(st.ctx, c, d)
	if err != nil {
		st.denied.Store(&err)
	}
	return err
}

// setTrailer sets the trailers of the last decision. Setting them earlier would add to them.
func (st *stream) setTrailer() {
	if md := st.server.trailer(st.last.Load()); md != nil {
		st.ServerStream.SetTrailer(md)
	}
}
