package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/load"
)

// maxOutstanding is how many responses a server keeps for a connection (H4): one more may be
// lost.
const maxOutstanding = 1023

// rawPatience is how long answers may take beyond the end of a measurement.
const rawPatience = 5 * time.Second

// raw is no client: it writes frames that are encoded already, keeps so many operations
// outstanding, and counts the bytes of their answers.
type raw struct {
	cfg         throttr.Config
	workload    workload
	keys        keySet
	outstanding int        // operations, over all connections
	like        func() int // how many connections per server to open; nil: all
	made        bool       // there can be records
	lanes       []*rawConn // lane i is to server i modulo their number
}

func (r *raw) prepare(ctx context.Context) error {
	if r.cfg.TLS != nil {
		return errors.New("raw speaks no TLS")
	}
	if r.workload == hitWorkload {
		r.keys = r.keys.likeWindows(hitScale)
	}
	var operation rawOperation
	err := r.eachServer(ctx, func(_ int, c client) (err error) {
		r.made = true
		operation = c.rawOperation(r.workload)
		if r.workload != insertWorkload {
			err = c.insertAll(ctx, r.keys)
		}
		return err
	})
	if err != nil {
		return err
	}
	conns := r.cfg.MaxConns
	if r.like != nil {
		conns = r.like()
	}
	n := min(conns*len(r.cfg.Servers), r.outstanding)
	for i := range n {
		depth := (r.outstanding + i) / n // these add up
		if depth*operation.responses > maxOutstanding {
			return fmt.Errorf("%d outstanding on %d connections are more than the %d responses that a server keeps for each (H4)", r.outstanding, n, maxOutstanding)
		}
		nc, err := dialRaw(ctx, r.cfg.Servers[i%len(r.cfg.Servers)])
		if err != nil {
			return err
		}
		c := newRawConn(nc, operation, depth, r.keys, i)
		if r.workload == insertWorkload {
			c.fresh, c.keys = true, r.keys.share(i, n)
		}
		r.lanes = append(r.lanes, c)
	}
	return nil
}

// eachServer does something with a client of each server alone.
func (r *raw) eachServer(ctx context.Context, do func(i int, c client) error) error {
	for i, server := range r.cfg.Servers {
		cfg := r.cfg
		cfg.Servers = []string{server}
		c, err := connectTo(ctx, cfg)
		if err != nil {
			return err
		}
		err = do(i, c)
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *raw) measure(ctx context.Context, cfg load.Config) (load.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg.Goroutines = len(r.lanes)
	late := time.Now().Add(cfg.Warmup + cfg.Duration + rawPatience)
	res, err := load.RunLoops(ctx, cfg, func(ctx context.Context, i int, m *load.Meter) {
		c := r.lanes[i]
		c.SetDeadline(late)
		defer context.AfterFunc(ctx, func() { c.Close() })()
		if err := c.pump(m); err != nil {
			cancel(err)
		}
	})
	if err == nil {
		err = context.Cause(ctx) // of one that had but to wait for its last answers
	}
	return res, err
}

func (r *raw) conns() int { return (len(r.lanes) + len(r.cfg.Servers) - 1) / len(r.cfg.Servers) }

func (r *raw) clean(ctx context.Context) error {
	for _, c := range r.lanes {
		c.Close()
	}
	if !r.made {
		return nil
	}
	return r.eachServer(ctx, func(server int, c client) error {
		if r.workload != insertWorkload {
			return c.purgeAll(ctx, r.keys)
		}
		var purges sync.WaitGroup
		errs := make([]error, len(r.lanes))
		for i := server; i < len(r.lanes); i += len(r.cfg.Servers) {
			keys := r.lanes[i].keys
			keys.n = int(r.lanes[i].sent)
			purges.Go(func() { errs[i] = c.purgeAll(ctx, keys) })
		}
		purges.Wait()
		return errors.Join(errs...)
	})
}

// rawOperation is an operation in bytes.
type rawOperation struct {
	append    func(dst, key []byte) []byte // appends the requests for a key that is not too long
	responses int                          // that answer it
	size      int                          // of these in bytes, if it succeeds
}

func (c typed[T]) rawOperation(w workload) rawOperation {
	found := 2 + 2*codec.Size[T]() // bytes that answer a QUERY
	increase := func(dst, key []byte) []byte {
		dst, _ = codec.Update[T]{Attribute: codec.Quota, Change: codec.Increase, Value: 1, Key: key}.AppendBinary(dst)
		return dst
	}
	query := func(dst, key []byte) []byte {
		dst, _ = codec.Query{Key: key}.AppendBinary(dst)
		return dst
	}
	switch w {
	case insertWorkload:
		return rawOperation{func(dst, key []byte) []byte {
			dst, _ = codec.Insert[T]{Key: key, TTL: benchTTLOf[T]()}.AppendBinary(dst)
			return dst
		}, 1, 1}
	case queryWorkload:
		return rawOperation{query, 1, found}
	case hitWorkload: // on a window that is known
		return rawOperation{func(dst, key []byte) []byte { return query(increase(dst, key), key) }, 2, 1 + found}
	default:
		return rawOperation{increase, 1, 1}
	}
}
