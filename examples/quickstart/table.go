package main

import (
	"fmt"
	"io"
	"time"
)

// table prints hits and counts them for the summary.
type table struct {
	out    io.Writer
	counts map[string]*counts // by user
}

// counts are the numbers of a user.
type counts struct{ hits, allowed, denied, windows int }

func newTable(out io.Writer) *table {
	t := &table{out: out, counts: make(map[string]*counts)}
	for _, u := range users {
		t.counts[u.name] = new(counts)
	}
	fmt.Fprintf(out, "limit: %d hits per %v and user\n\n", limit, scale)
	t.row("time", "user", "hit", "decision", "count", "remaining", "retry after", "window")
	return t
}

func (t *table) row(time, user, hit, decision, count, remaining, retryAfter, window any) {
	fmt.Fprintf(t.out, "%8v  %-6v %4v  %-8v %6v %10v %12v  %v\n", time, user, hit, decision, count, remaining, retryAfter, window)
}

// line prints a hit. The first hit of a window has a count of 1.
func (t *table) line(h hit) {
	u := t.counts[h.user]
	u.hits++
	window := ""
	if h.res.Count == 1 {
		window = "opened"
		if u.windows++; u.windows > 1 {
			window = "reopened"
		}
	}
	decision, retryAfter := "allowed", ""
	if h.res.Allowed {
		u.allowed++
	} else {
		u.denied++
		decision, retryAfter = "denied", seconds(h.res.RetryAfter)
	}
	t.row(seconds(h.at), h.user, u.hits, decision, h.res.Count, h.res.Remaining, retryAfter, window)
}

// summary prints a line for each user.
func (t *table) summary() {
	fmt.Fprintf(t.out, "\n%-6s %8s %8s %8s %9s\n", "user", "allowed", "denied", "windows", "reopened")
	for _, u := range users {
		c := t.counts[u.name]
		fmt.Fprintf(t.out, "%-6s %8d %8d %8d %9d\n", u.name, c.allowed, c.denied, c.windows, max(0, c.windows-1))
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
