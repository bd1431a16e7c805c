package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

const (
	// startTime is how long processes have to start. The first window on a server can wait for a second,
	// for the decision whether to park it.
	startTime = 2 * time.Second
	// minShared is the shortest measurement: a busy machine may not run a process for some 10 ms.
	minShared = 250 * time.Millisecond
)

// compareLeases measures leases, and what they are compared with.
func (r *results) compareLeases(ctx context.Context, s *servers) error {
	if err := r.compare(ctx, s, cold, coldKeys, coldGoroutines); err != nil {
		return err
	}
	for _, k := range sharings {
		for _, c := range sharers {
			if !c.measured(k) {
				continue
			}
			if err := r.shareKey(ctx, s, k, c); err != nil {
				return fmt.Errorf("%v: %w", c.measurement(k), err)
			}
		}
	}
	return nil
}

// assignment returns what each process of a sharer does.
func (r *results) assignment(s *servers, k sharing, c sharer) assignment {
	t := assignment{
		Sharer: c.name, Mock: s.shared.addr, Redis: s.redis.addr, Key: fmt.Sprintf("api:%d", s.sharedKeys.Add(1)),
		Callers: c.callers(), Sample: c.sample, Limit: limit, Scale: r.plan.sharedScale,
	}
	d := max(r.plan.duration, minShared)
	if k.limited {
		d = r.plan.shared
		t.Limit = int(sharedLimit * t.Scale.Seconds())
		t.Rate = k.demand * sharedLimit / float64(leaseProcesses*leaseCallers)
	}
	if t.Rate > 0 {
		t.Sample = 1
	}
	t.Start = time.Now().Add(startTime + r.plan.warmup() + t.Scale)
	t.End = t.Start.Add(d)
	return t
}

// shareKey lets processes share a key, and measures them.
func (r *results) shareKey(ctx context.Context, s *servers, k sharing, c sharer) (err error) {
	a := r.assignment(s, k, c)
	var running []*sharedProcess
	for range c.processes {
		p, failed := startSharedProcess(ctx, a)
		if err = failed; err != nil {
			break
		}
		running = append(running, p)
	}
	var used serverUsage
	if err == nil {
		used, err = usageBetween(ctx, s, c, a.Start, a.End)
	}
	var all sharedReport
	for _, p := range running {
		report, failed := p.end()
		err = errors.Join(err, failed)
		all.merge(report)
	}
	if err != nil {
		return err
	}
	m := c.measurement(k)
	res, figures := all.results(a, used, c)
	r.loads[m] = append(r.loads[m], res)
	r.redisCPU[m] = append(r.redisCPU[m], float64(used.cpu)/float64(all.Hits))
	r.shared[m] = append(r.shared[m], figures)
	fmt.Fprintf(os.Stderr, "%v: %.0f/s\n", m, res.PerSecond)
	return nil
}

// results returns the figures of all processes together.
func (all *sharedReport) results(a assignment, used serverUsage, c sharer) (load.Result, sharedFigures) {
	d, hits := a.End.Sub(a.Start), float64(all.Hits)
	res := load.Result{
		Operations: all.Hits, Elapsed: d, PerSecond: hits / d.Seconds(), CPUPerOperation: float64(all.CPU) / hits,
		P50: all.Times.Quantile(0.5), P99: all.Times.Quantile(0.99), P999: all.Times.Quantile(0.999),
	}
	f := sharedFigures{requests: math.NaN(), allowed: math.NaN(), used: math.NaN(), hits: all.Hits}
	if c.server != nil {
		f.requests, f.allowed = 1000*float64(used.requests)/hits, 1000*float64(used.requests)/float64(all.Allowed)
	}
	whole, inWhole := 0, uint64(0)
	for _, w := range all.windows(a.Scale) {
		f.windows++
		f.over = max(f.over, float64(w.allowed)-float64(a.Limit))
		if !w.end.Before(a.Start.Add(a.Scale)) && w.end.Before(a.End) {
			whole++
			inWhole += w.allowed
		}
	}
	if whole > 0 {
		f.used = float64(inWhole) / float64(whole*a.Limit)
	}
	return res, f
}

// sharedWindow is a window, and how many hits it has allowed.
type sharedWindow struct {
	end     time.Time // the earliest that a process was told
	allowed uint64
}

// windows returns all windows, in order. The ends of one window differ by the precision of TTLs and the
// time of a round trip, and those of different windows by a scale at least.
func (all *sharedReport) windows(scale time.Duration) (found []sharedWindow) {
	for _, ms := range slices.Sorted(maps.Keys(all.Windows)) {
		end := time.UnixMilli(ms)
		if len(found) == 0 || end.Sub(found[len(found)-1].end) > scale/2 {
			found = append(found, sharedWindow{end: end})
		}
		found[len(found)-1].allowed += all.Windows[ms]
	}
	return found
}

// sharedProcess is a process that hits a shared key.
type sharedProcess struct {
	cmd       *exec.Cmd
	out, errs bytes.Buffer
}

func startSharedProcess(ctx context.Context, a assignment) (*sharedProcess, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &sharedProcess{cmd: exec.CommandContext(ctx, executable)}
	p.cmd.Env = append(os.Environ(), assignmentVariable+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errs
	return p, p.cmd.Start()
}

// end waits for the process, and returns what it reports.
func (p *sharedProcess) end() (report sharedReport, err error) {
	if err := p.cmd.Wait(); err != nil {
		return report, fmt.Errorf("a process: %w: %s", err, p.errs.Bytes())
	}
	return report, json.Unmarshal(p.out.Bytes(), &report)
}

// serverUsage is what a server has used and done.
type serverUsage struct {
	cpu      time.Duration
	requests uint64
}

// usageBetween returns what the server of a sharer uses and does between two times.
func usageBetween(ctx context.Context, s *servers, c sharer, start, end time.Time) (serverUsage, error) {
	before, err := usageAt(ctx, s, c, start)
	if err != nil {
		return before, err
	}
	after, err := usageAt(ctx, s, c, end)
	return serverUsage{after.cpu - before.cpu, after.requests - before.requests}, err
}

// usageAt returns what the server of a sharer has used and done at a time.
func usageAt(ctx context.Context, s *servers, c sharer, at time.Time) (u serverUsage, err error) {
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
		return u, context.Cause(ctx)
	}
	if c.server == nil {
		return u, nil
	}
	p := c.server(s)
	u.cpu = p.cpu()
	if p == s.redis {
		u.requests, err = redisRequests(ctx, s)
	} else {
		u.requests, err = mockRequests(ctx, s)
	}
	return u, err
}

func mockRequests(ctx context.Context, s *servers) (uint64, error) {
	client, err := connect(ctx, s.shared.addr)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	info, err := client.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info[0].Requests.Update.Total + info[0].Requests.Query.Total + info[0].Requests.Insert.Total, nil
}

// redisRequests returns how many scripts and INCR Redis has run. Scripts of the backends call no INCR.
func redisRequests(ctx context.Context, s *servers) (n uint64, err error) {
	client, err := connectRueidis(setup{servers: s})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	info, err := client.Do(ctx, client.B().Info().Section("commandstats").Build()).ToString()
	for line := range strings.Lines(info) {
		name, figures, _ := strings.Cut(line, ":calls=")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_incr":
			calls, _, _ := strings.Cut(figures, ",")
			k, failed := strconv.ParseUint(calls, 10, 64)
			n, err = n+k, errors.Join(err, failed)
		}
	}
	return n, err
}
