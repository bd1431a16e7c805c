package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/sweep"
	"github.com/throttr-go/throttr/mockserver"
)

// The load of -kill.
const (
	processes   = 4
	killEvery   = 2 * time.Second  // a process is killed, on average
	absentEvery = time.Minute      // all are killed
	absentTime  = 10 * time.Second // and start again after this time
	killKeys    = 2000
	// cleanTime is enough for a sweep of a parked server once no client can use the names again.
	// The records of a window of 1 min are below W 191 s after its opening, and sweeps come every
	// 60 to 66 s.
	cleanTime = 5 * time.Minute
)

// killSoak kills processes and starts others.
type killSoak struct {
	o       options
	srv     *mockserver.Server
	running []*exec.Cmd
	kills   int
	most    int // records at one time
}

// runKill runs the load of -kill.
func (o options) runKill() error {
	srv, err := mockserver.Start(mockserver.WithRealCollector())
	if err != nil {
		return err
	}
	defer srv.Close()
	k := &killSoak{o: o, srv: srv}
	defer k.killAll()
	fmt.Fprintf(o.out, "seed %d\n%8s %6s %10s %9s %9s %8s\n", o.seed, "time", "kills", "requests/s", "INSERTs", "records", "expired")
	if err := k.killProcesses(rand.New(rand.NewPCG(o.seed, 0))); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "%d processes were killed, %d INSERTs executed, at most %d records at a time\n",
		k.kills, k.srv.Requests(codec.OpInsert), k.most)
	return k.clean()
}

// killProcesses kills processes until the time is over.
func (k *killSoak) killProcesses(r *rand.Rand) error {
	start := time.Now()
	nextSample, nextAbsence := start.Add(k.o.every), start.Add(absentEvery)
	requests := 0
	for now := start; now.Sub(start) < k.o.duration; now = time.Now() {
		if !now.Before(nextAbsence) {
			k.killAll()
			time.Sleep(absentTime)
			nextAbsence = time.Now().Add(absentEvery)
		}
		for len(k.running) < processes {
			if err := k.start("hit"); err != nil {
				return err
			}
		}
		time.Sleep(killEvery/2 + rand.N(killEvery))
		k.kill(r.IntN(processes))
		k.most = max(k.most, len(k.records()))
		if now = time.Now(); now.Before(nextSample) {
			continue
		}
		n := k.requests()
		fmt.Fprintf(k.o.out, "%6.1f s %6d %10.0f %9d %9d %8d\n", now.Sub(start).Seconds(), k.kills,
			float64(n-requests)/(now.Sub(nextSample)+k.o.every).Seconds(), k.srv.Requests(codec.OpInsert), len(k.records()), k.srv.Expired())
		if n == requests {
			return errors.New("no request was executed")
		}
		requests, nextSample = n, now.Add(k.o.every)
		if err := k.check(); err != nil {
			return err
		}
	}
	return nil
}

// clean kills all processes, and has one start that makes no hit. It must remove all records.
func (k *killSoak) clean() error {
	k.killAll()
	left := len(k.records())
	if err := k.start("sweep"); err != nil {
		return err
	}
	start := time.Now()
	for len(k.records()) > 0 {
		if time.Since(start) > cleanTime {
			return fmt.Errorf("%d records remain", len(k.records()))
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(k.o.out, "the dead left %d records; %v after the start of another process, none remains\n",
		left, time.Since(start).Round(time.Second))
	return k.check()
}

// check returns an error if the server has locked up, or was about to.
func (k *killSoak) check() error {
	if v := k.srv.Violations(); len(v) > 0 {
		return fmt.Errorf("%v", v[0])
	}
	if n := k.srv.Expired(); n > 0 {
		return fmt.Errorf("%d records have expired", n)
	}
	return nil
}

// records returns the keys of the records of windows.
func (k *killSoak) records() []string {
	return slices.DeleteFunc(k.srv.Keys(), func(key string) bool { return key == "" || key == sweep.LeaderKey })
}

func (k *killSoak) requests() (n int) {
	for op := codec.OpInsert; op <= codec.OpGet; op++ {
		n += k.srv.Requests(op)
	}
	return n
}

// start starts a process of this program.
func (k *killSoak) start(work string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-process", work, "-server", k.srv.Addr(), "-parking", k.o.parking.String())
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	k.running = append(k.running, cmd)
	return nil
}

// kill kills a process as a kernel does that is out of memory.
func (k *killSoak) kill(i int) {
	cmd := k.running[i]
	k.running = slices.Delete(k.running, i, i+1)
	cmd.Process.Kill()
	cmd.Wait()
	k.kills++
}

func (k *killSoak) killAll() {
	for len(k.running) > 0 {
		k.kill(0)
	}
}

// runProcess is a process of the load, which is killed.
func (o options) runProcess() error {
	ctx := context.Background()
	client, err := throttr.Connect[uint16](ctx, throttr.Config{Servers: []string{o.server}, Parking: o.parking})
	if err != nil {
		return err
	}
	limiter := throttr.NewRateLimit(client.Backend(), throttr.WithTimeout(10*time.Second))
	if o.process == "hit" {
		for range 32 {
			go func() {
				for {
					scale := []time.Duration{time.Second, time.Second, 5 * time.Second, time.Minute}[rand.N(4)]
					limiter.Hit(ctx, fmt.Sprintf("user:%d", rand.N(killKeys)), scale, 100)
					time.Sleep(rand.N(60 * time.Millisecond))
				}
			}()
		}
	}
	parent := os.Getppid()
	for os.Getppid() == parent { // it ends with the parent
		time.Sleep(time.Second)
	}
	return nil
}
