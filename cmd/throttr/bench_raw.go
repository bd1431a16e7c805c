package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/internal/dial"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// newKeys returns n keys that no other process uses. They end with what extra is, and a number.
func newKeys(extra string, n int) load.KeySet {
	var id [4]byte
	rand.Read(id[:]) // never fails
	return load.KeySet{Prefix: fmt.Sprintf("bench:%x:%s", id, extra), N: n}
}

// rawLoad is load that [load.Raw] generates, and the records that it needs.
type rawLoad struct {
	cfg       throttr.Config
	workload  load.Workload
	client    *clientLoad // that it is compared with
	keys      load.KeySet
	connected bool // so that there can be records
	*load.Raw
}

func (r *rawLoad) prepare(ctx context.Context) error {
	extra := ""
	if r.workload == load.Hit { // keys that are as long as the names of the records of windows
		extra = strings.Repeat("-", len(fmt.Sprintf("rl:%v:%d:", hitScale, time.Now().UnixNano()/int64(hitScale))))
	}
	r.keys = newKeys(extra, r.client.keys.N)
	cfg := load.RawConfig{Conns: r.client.conns(), Outstanding: r.client.goroutines, Keys: r.keys, Dial: r.cfg.Dial}
	err := forEachServer(ctx, r.cfg, func(i int, c client) error {
		r.connected = true
		cfg.Frames = c.frames(r.workload)
		a, err := dial.ParseAddress(r.cfg.Servers[i])
		if err != nil {
			return err
		}
		cfg.Servers = append(cfg.Servers, a)
		return c.insertAll(ctx, r.keys)
	})
	if err == nil {
		r.Raw, err = load.NewRaw(ctx, cfg)
	}
	return err
}

func (r *rawLoad) conns() int { return r.Conns() }

func (r *rawLoad) cleanUp(ctx context.Context) error {
	if r.Raw != nil {
		r.Close()
	}
	if !r.connected {
		return nil
	}
	return forEachServer(ctx, r.cfg, func(_ int, c client) error { return c.purgeAll(ctx, r.keys) })
}
