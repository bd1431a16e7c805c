package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// newKeys returns n keys that no other process uses.
func newKeys(n int) load.KeySet {
	return load.KeySet{Sequence: load.NewSequence(keyPrefix()), N: n}
}

func keyPrefix() string {
	var id [4]byte
	rand.Read(id[:]) // never fails
	return fmt.Sprintf("bench:%x:", id)
}

// newRecordNames returns n keys that are as long as the names of the records of windows of
// other keys.
func newRecordNames(n int, scale time.Duration) load.KeySet {
	extra := len(fmt.Sprintf("rl:%v:%d:", scale, time.Now().UnixNano()/int64(scale)))
	return load.KeySet{Sequence: load.NewSequence(keyPrefix() + strings.Repeat("-", extra)), N: n}
}

// rawLoad is load that [load.Raw] generates, and the records that it needs.
type rawLoad struct {
	cfg         throttr.Config
	workload    load.Workload
	keys        load.KeySet
	outstanding int
	maxConns    func() int      // per server; nil: those of cfg
	mix         func() load.Mix // an operation of sparse
	connected   bool            // so that there can be records
	*load.Raw
}

func (r *rawLoad) prepare(ctx context.Context) error {
	if r.cfg.TLS != nil {
		return errors.New("raw does not support TLS")
	}
	switch r.workload {
	case load.Hit:
		r.keys = newRecordNames(r.keys.N, hitScale)
	case load.Sparse:
		r.keys = newRecordNames(r.keys.N, time.Second)
	}
	cfg := load.RawConfig{Conns: r.cfg.MaxConns, Outstanding: r.outstanding, Keys: r.keys, Dial: r.cfg.Dial}
	if r.maxConns != nil {
		cfg.Conns = r.maxConns()
	}
	if r.workload == load.Insert {
		cfg.Keys.N = 0
	}
	err := forEachServer(ctx, r.cfg, func(i int, c client) error {
		r.connected = true
		if r.workload == load.Sparse {
			cfg.Frames = c.mixed(r.mix())
			cfg.Outstanding = min(r.outstanding, cfg.Conns*len(r.cfg.Servers)*(load.MaxResponses/cfg.Frames.Responses))
		} else {
			cfg.Frames = c.frames(r.workload)
		}
		a, err := dial.ParseAddress(r.cfg.Servers[i])
		if err != nil {
			return err
		}
		cfg.Servers = append(cfg.Servers, a)
		return c.insertAll(ctx, cfg.Keys)
	})
	if err == nil {
		r.Raw, err = load.NewRaw(ctx, cfg)
	}
	return err
}

func (r *rawLoad) warmUp(ctx context.Context, d time.Duration, report func(load.Progress)) error {
	return warmUp(ctx, r, d, report)
}

func (r *rawLoad) conns() int { return r.Conns() }

func (r *rawLoad) cleanUp(ctx context.Context) error {
	if r.Raw != nil {
		r.Close()
	}
	if !r.connected {
		return nil
	}
	return forEachServer(ctx, r.cfg, func(server int, c client) error {
		if r.workload != load.Insert {
			return c.purgeAll(ctx, r.keys)
		}
		if r.Raw == nil {
			return nil
		}
		used := r.Used(server)
		return load.ForEach(len(used), len(used), func(i int) error { return c.purgeAll(ctx, used[i]) })
	})
}
