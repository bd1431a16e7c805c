package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// versions describes the machine and lists the versions of all contenders, one per line.
func versions(ctx context.Context) []string {
	all := []string{
		fmt.Sprintf("%d cores, %s", runtime.NumCPU(), processor()),
		fmt.Sprintf("%s, %s/%s, GOMAXPROCS %d", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0)),
	}
	if runtime.GOMAXPROCS(0) > 1 {
		all = append(all, fmt.Sprintf("a value passes from one core to another in %v, which callers that share requests do often", passing()))
	}
	if average, err := os.ReadFile("/proc/loadavg"); err == nil {
		all = append(all, "load average "+strings.Fields(string(average))[0]+" before the first round")
	}
	for _, command := range [][]string{
		{"uname", "-sr"},
		{"redis-server", "--version"},
		{"git", "log", "-1", "--format=throttr at commit %h"},
	} {
		if out, err := output(ctx, command[0], command[1:]...); err == nil {
			all = append(all, strings.TrimSpace(string(out)))
		}
	}
	info, _ := debug.ReadBuildInfo()
	for _, c := range oneOfEachModule() {
		for _, m := range info.Deps {
			if m.Path == c.module {
				all = append(all, m.Path+" "+m.Version)
			}
		}
	}
	return all
}

// passing returns in which time one goroutine sees what another one has written. It depends on which cores a virtual
// machine has at the moment.
func passing() time.Duration {
	const rounds = 200_000
	var turn atomic.Int64
	var players sync.WaitGroup
	begun := time.Now()
	for player := range int64(2) {
		players.Go(func() {
			for range rounds {
				for turn.Load()%2 != player {
				}
				turn.Add(1)
			}
		})
	}
	players.Wait()
	return time.Since(begun) / (2 * rounds)
}

// oneOfEachModule returns one contender of each module.
func oneOfEachModule() (all []contender) {
	seen := map[string]bool{}
	for _, w := range []workload{increase, hit, algorithms} {
		for _, c := range w.contenders {
			if !seen[c.module] {
				seen[c.module] = true
				all = append(all, c)
			}
		}
	}
	return all
}

// processor returns the model of the processor, if the system reports it.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(info); m != nil {
		return string(m[1])
	}
	return "an unknown processor"
}
