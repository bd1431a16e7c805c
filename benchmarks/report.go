package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// report writes what was measured as Markdown.
func (r *results) report(w io.Writer) {
	fmt.Fprintf(w, `# Results

Written by `+"`go -C benchmarks run .`"+`, in %s of %v for each measurement. In a round all take turns, and a ratio is
one of two that were measured in the same round. Figures are the medians of all rounds, and ratios have the lowest and the
highest round in brackets. Where these differ much, the machine was busy with something else.

`, plural(r.plan.rounds, "round"), r.plan.duration)
	for _, v := range r.versions {
		fmt.Fprintf(w, "- %s\n", v)
	}
	fmt.Fprintf(w, "\n## Ratios\n\n")
	rows(w, []string{"what", ">asked for", ">measured", "holds"}, r.claimRows())
	fmt.Fprintf(w, `
*Raw* is no client: it writes frames that are encoded already, over as many connections and with as many outstanding, and
counts the bytes of the answers (`+"`throttr bench -compare raw`"+`). CPU is that of the whole client process. Two
processes share the processors in all that goes over the network, so that a client that needs less leaves more to its
server.

## Over a network

Clients and servers are processes of one machine, connected by TCP over its loopback interface. **The servers are not
the same**: a mock server, which does nothing but count, is faster than Redis. What the "3 µs server" takes for each
request is what a real Throttr server takes. CPU per operation is the client's own, and the fairest comparison.

| | |
|---|---|
| ![increases per second](charts/increase-throughput.svg) | ![99th percentile of increase](charts/increase-p99.svg) |
| ![hits per second](charts/hit-throughput.svg) | ![99th percentile of hit](charts/hit-p99.svg) |

`)
	for _, at := range []struct {
		workload
		keys       int
		goroutines []int
	}{{increase, fewKeys, r.plan.goroutines}, {hit, fewKeys, r.plan.goroutines}, {hit, 1, oneKeyGoroutines}} {
		fmt.Fprintf(w, "### `%s`, %s\n\n", at.name, plural(at.keys, "key"))
		rows(w, strings.Fields("client >goroutines >operations/s >p50 >p99 >CPU/operation >allocations/operation"), r.networkRows(at.workload, at.keys, at.goroutines))
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "## In the process\n\n")
	rows(w, []string{"package", ">1 key, 1 goroutine", ">100,000 keys, 2 goroutines", ">allocations/hit", ">bytes/key"}, r.embeddedRows())
	fmt.Fprintf(w, `
Hits per second, and the heap that a key of 16 bytes takes when there are %d, the key included.

## What each of them does

`, r.plan.filled)
	for _, c := range []workload{increase, hit, embedded} {
		var all [][]string
		for _, c := range c.contenders {
			all = append(all, []string{c.name, c.does})
		}
		rows(w, []string{"`" + c.name + "`", "is"}, all)
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, `A fixed window allows as many hits as the limit from its start to its end. A bucket that refills, as of GCRA, spreads them:
it has no end at which all come back, and allows up to twice the limit within the length of a window. Neither does the
other's job. What is in the process limits each process for itself.

The limits are so high that nothing is denied, and the keys are picked at random. Clients have their defaults. A client is
started anew for each measurement, and what is measured begins once it has warmed up. The process holds 64 MiB besides, so
that the garbage collector runs as rarely as in a service.
`)
}

// networkRows are the figures of all contenders of a workload.
func (r *results) networkRows(w workload, keys int, goroutines []int) (all [][]string) {
	for _, n := range goroutines {
		for _, c := range w.contenders {
			of := func(f figure) float64 { return median(r.each(id{w.name, c.name, keys, n}, f)) }
			all = append(all, []string{
				c.name, fmt.Sprint(n), count(of(perSecond)), span(of(p50)), span(of(p99)), span(of(cpu)), fmt.Sprintf("%.2f", of(allocs)),
			})
		}
	}
	return all
}

// embeddedRows are the figures of what is in the process.
func (r *results) embeddedRows() (all [][]string) {
	for _, c := range embedded.contenders {
		one, many := id{embedded.name, c.name, 1, 1}, id{embedded.name, c.name, manyKeys, 2}
		perKey := "as above"
		if n, ok := r.perKey[c.name]; ok {
			perKey = fmt.Sprintf("%.0f", n)
		}
		all = append(all, []string{
			c.name, count(median(r.each(one, perSecond))), count(median(r.each(many, perSecond))),
			fmt.Sprintf("%.2f", median(r.each(many, allocs))), perKey,
		})
	}
	return all
}

// claimRows are what was asked for, and what was measured.
func (r *results) claimRows() (all [][]string) {
	for _, c := range r.claims() {
		m := median(c.measured)
		holds := ""
		if c.bound != "" {
			holds = "yes"
			if !c.holds(m) {
				holds = "**no**"
			}
		}
		measured := fmt.Sprintf(c.format, m)
		if lo, hi := fmt.Sprintf(c.format, slices.Min(c.measured)), fmt.Sprintf(c.format, slices.Max(c.measured)); lo != hi {
			measured += fmt.Sprintf(" (%s–%s)", lo, hi)
		}
		all = append(all, []string{c.what, c.bound, measured, holds})
	}
	return all
}

// rows writes a Markdown table. A title that begins with > is that of a column of numbers.
func rows(w io.Writer, titles []string, rows [][]string) {
	var head, rule strings.Builder
	for _, title := range titles {
		name, numbers := strings.CutPrefix(title, ">")
		fmt.Fprintf(&head, " %s |", name)
		rule.WriteString("---")
		if numbers {
			rule.WriteString(":")
		}
		rule.WriteString("|")
	}
	fmt.Fprintf(w, "|%s\n|%s\n", head.String(), rule.String())
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// count returns a number to three digits, with commas.
func count(f float64) string {
	if math.IsNaN(f) {
		return "-"
	}
	step := math.Pow(10, max(math.Floor(math.Log10(max(f, 1)))-2, 0))
	digits := fmt.Sprintf("%.0f", math.Round(f/step)*step)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span returns nanoseconds to three digits as a duration.
func span(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	d := time.Duration(ns)
	for unit := time.Duration(1); unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
