package throttr

import (
	"context"
	"fmt"
	"sync"

	"github.com/throttr-go/throttr/internal/conn"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/outage"
)

// sizing learns the value size of the servers of a backend, which need not be there yet. The first server that tells it
// gives the backend its client.
type sizing struct {
	backend *ServerBackend
	cfg     Config // with its defaults
	options backendOptions
	dialer  *dial.Dialer
	asking  sync.WaitGroup
	ctx     context.Context // ends when the value size is known, and with the backend
	cancel  context.CancelFunc

	// mu guards what follows.
	mu     sync.Mutex
	closed bool
	sized  bool    // the value size is known, and a client is being made
	causes []error // for each server, why the last attempt to learn its value size has failed
}

// learnSize has the value size of the servers learned in the background. It waits for the first attempts to reach
// them, but not for longer than startWait.
func (b *ServerBackend) learnSize(ctx context.Context, cfg Config, o backendOptions) {
	s := &sizing{backend: b, cfg: cfg, options: o, dialer: cfg.dialer(), causes: make([]error, len(cfg.Servers))}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	b.sizing = s
	attempts := make([]<-chan struct{}, len(cfg.Servers))
	for i := range cfg.Servers {
		first := make(chan struct{})
		attempts[i] = first
		s.causes[i] = errNotYet
		s.asking.Go(func() { s.ask(i, sync.OnceFunc(func() { close(first) })) })
	}
	awaitAll(ctx, attempts)
}

// errNotYet is why a server is not there before the first attempt to reach it has ended.
var errNotYet = fmt.Errorf("%w: no response yet", ErrConnect)

// ask asks a server for its value size until one of the servers has told it.
func (s *sizing) ask(server int, attempted func()) {
	defer attempted()
	name := s.cfg.Servers[server]
	address, err := parseAddress(name)
	pauses := outage.NewBackoff(s.cfg.MinBackoff, s.cfg.MaxBackoff)
	target := &dial.Target{Server: name, Address: address, Dialer: s.dialer}
	for err == nil {
		size, failure := dial.ProbeSize(s.ctx, target)
		if failure == nil {
			if s.failed(server) && outage.Sleep(s.ctx, dial.StartUp) != nil { // it may have just been started
				return
			}
			s.learned(size, server)
			return
		}
		s.fail(server, failure)
		attempted()
		err = pauses.Wait(s.ctx, failure)
	}
}

// learned makes the client of a value size, which a server has told.
func (s *sizing) learned(size, server int) {
	s.mu.Lock()
	first := !s.sized && !s.closed
	s.sized = true
	s.mu.Unlock()
	if !first {
		return
	}
	ended, cancel := context.WithCancel(s.ctx)
	cancel() // Connect must not wait for the other servers
	client, err := connect(ended, s.cfg, conn.SizeOf(size))
	if err != nil {
		s.fail(server, err)
		return
	}
	select {
	case <-client.attempted(server):
	case <-s.ctx.Done():
	}
	client.keepWindowsOf(s.backend, s.options)
	s.cancel() // the others need not be asked
}

// failed reports whether an attempt to reach a server has failed.
func (s *sizing) failed(server int) bool { return s.cause(server) != errNotYet }

func (s *sizing) fail(server int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.causes[server] = err
}

// cause returns why the value size of a server isn't known.
func (s *sizing) cause(server int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.causes[server]
}

// err returns the error of a call that needs a server.
func (s *sizing) err(ctx context.Context, server int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch err := ctx.Err(); {
	case err != nil:
		return err
	case s.closed:
		return ErrClosed
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, s.causes[server])
}

// stop ends the attempts. If the backend has no client by then, it never has one.
func (s *sizing) stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.asking.Wait()
}
