package grpclimit

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/admission"
)

// Server limits the calls of a gRPC server. Make one with [NewServer]. It is safe for concurrent use.
type Server struct {
	cfg      Config
	keys     admission.KeyFuncs[KeyFunc]
	calls    *admission.Gate
	messages *admission.Gate            // or nil
	methods  map[string]*admission.Plan // by the name of a method or a service
}

// NewServer returns a Server, whose interceptors limit calls. It panics if limiter is nil.
//
// The error matches [throttr.ErrConfig]. It also matches [throttr.ErrScale], [throttr.ErrRange] or
// [throttr.ErrUnsupported] if a backend can't keep one of the limits. Check the plans that Config.Plan
// returns with [Server.Check].
func NewServer(limiter *throttr.RateLimit, cfg Config) (*Server, error) {
	if limiter == nil {
		panic("grpclimit: NewServer: limiter is nil")
	}
	cfg.Metric = cmp.Or(cfg.Metric, "requests")
	if cfg.GiveBack != nil && cfg.CountRefusals {
		return nil, fmt.Errorf("%w: grpclimit: GiveBack can't be combined with CountRefusals", throttr.ErrConfig)
	}
	byAddr, err := ByAddr(cfg.Addr)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg}
	s.keys = admission.KeyFuncs[KeyFunc]{Key: cfg.Key, KeyOf: cfg.KeyOf, Addr: byAddr, Everyone: Everyone, Remote: Peer}
	if err := s.keys.Check(cfg.has); err != nil {
		return nil, err
	}
	calls := cfg.admission(cfg.Limits, s.keys.Keyed())
	calls.InFlight = cfg.InFlight
	calls.Places = cfg.Places
	calls.NoPlace = cfg.NoPlace
	if s.calls, err = admission.New(limiter, calls); err != nil {
		return nil, err
	}
	if len(cfg.Messages) > 0 {
		if s.messages, err = admission.New(limiter, cfg.admission(cfg.Messages, s.keys.Keyed())); err != nil {
			return nil, err
		}
	}
	if s.methods, err = cfg.plans(s.calls); err != nil {
		return nil, err
	}
	return s, nil
}

// Check returns an error if calls of a plan would fail with INTERNAL, see [admission.Gate.Check].
func (s *Server) Check(p *admission.Plan) error { return s.calls.Check(p) }

// Peek returns the state of the limits of a call without counting, see [admission.Gate.Peek]. Its Keys are those of
// Config.KeyOf, but for [Everyone].
func (s *Server) Peek(ctx context.Context, r admission.Request) ([]admission.Outcome, error) {
	return s.calls.Peek(ctx, r)
}

// Reset ends the windows of a call, see [admission.Gate.Reset]. Those of [Everyone] go on.
func (s *Server) Reset(ctx context.Context, r admission.Request) error { return s.calls.Reset(ctx, r) }

// StoredKey returns the key that the backend sees: for RateLimit.Forget, and for the throttr command.
func (s *Server) StoredKey(k admission.Key) string { return s.calls.StoredKey(k) }

// Unary is a [grpc.UnaryServerInterceptor].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (res any, err error) {
	c := Call{info.FullMethod, req}
	if s.cfg.Skip != nil && s.cfg.Skip(ctx, c) {
		return handler(ctx, req)
	}
	d := s.calls.Admit(ctx, s.request(ctx, c))
	if md := s.trailer(d); md != nil {
		_ = grpc.SetTrailer(ctx, md) // it fails if the call does not come over a network
	}
	err = s.serve(ctx, c, d, func() (err error) {
		res, err = handler(d.Context(), req)
		return err
	})
	return res, err
}

// serve calls the handler of a call, unless that is refused, and ends the call.
func (s *Server) serve(ctx context.Context, c Call, d *admission.Decision, handler func() error) error {
	defer d.Done()
	if err := s.refusal(ctx, c, d); err != nil {
		return err
	}
	code := codes.Internal // of a handler that panics
	defer func() {
		if s.cfg.GiveBack != nil && ctx.Err() == nil && s.cfg.GiveBack(ctx, c, code) {
			d.GiveBackLater()
		}
	}()
	err := handler()
	code = codeOf(err)
	return err
}

// request returns what a Gate decides on.
func (s *Server) request(ctx context.Context, c Call) admission.Request {
	r := s.keys.Request(func(f KeyFunc) string { return f(ctx, c) })
	if s.cfg.Plan != nil {
		r.Plan, r.PlanErr = s.cfg.Plan(ctx, c)
	}
	if r.Plan == nil || r.PlanErr != nil {
		r.Plan = s.planOf(c)
	}
	r.Cost = s.costOf(ctx, c)
	return r
}

// costOf returns what a call costs, or nil.
func (s *Server) costOf(ctx context.Context, c Call) func(throttr.Limit) uint64 {
	if s.cfg.Cost == nil {
		return nil
	}
	return func(l throttr.Limit) uint64 { return s.cfg.Cost(ctx, c, l) }
}

// planOf returns the plan of a method, or nil for that of Config.Limits.
func (s *Server) planOf(c Call) *admission.Plan {
	if plan := s.methods[c.Method]; plan != nil {
		return plan
	}
	return s.methods[c.Method[:strings.LastIndexByte(c.Method, '/')+1]]
}

// Stream is a [grpc.StreamServerInterceptor].
func (s *Server) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx := ss.Context()
	c := Call{Method: info.FullMethod}
	if s.cfg.Skip != nil && s.cfg.Skip(ctx, c) {
		return handler(srv, ss)
	}
	r := s.request(ctx, c)
	if r.Plan != nil && r.Plan.Empty() { // its messages are not counted, either
		return handler(srv, ss)
	}
	d := s.calls.Admit(ctx, r)
	st := &stream{ServerStream: ss, server: s, ctx: d.Context(), call: c, request: r}
	st.last.Store(d)
	defer st.setTrailer()
	return s.serve(ctx, c, d, func() error { return handler(srv, st) })
}

// stream is a stream whose messages are counted.
type stream struct {
	grpc.ServerStream
	server  *Server
	ctx     context.Context
	call    Call
	request admission.Request                  // of the stream
	last    atomic.Pointer[admission.Decision] // of the stream, or its last message; a handler may return before RecvMsg
	denied  atomic.Pointer[error]              // what RecvMsg returns since a message was denied; nil: none was
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
	r := st.request
	r.Plan = nil
	r.PlanErr = nil
	r.Cost = st.server.costOf(st.ctx, c)
	d := st.server.messages.Admit(st.ctx, r)
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

// codeOf returns the code that a client gets for the error of a handler: that of its status, or of the end of a
// context.
func codeOf(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return status.FromContextError(err).Code()
}
