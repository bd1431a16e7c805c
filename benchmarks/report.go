package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/servicetime"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// report writes all results as Markdown.
func (r *results) report(w io.Writer) {
	fmt.Fprint(w, `## Ratios

A ratio compares two measurements of the same round. The brackets contain the lowest and the highest round; if these differ
much, the machine was busy with something else.

`)
	rows(w, []string{"what", ">required", ">measured", "holds"}, requirementRows(r.requirements()))
	fmt.Fprintf(w, `
*Raw* is no client: it writes encoded frames, over as many connections and with as many outstanding operations, and
counts the bytes of the responses. Its hit is an UPDATE and a QUERY. CPU is that of the whole client process. Client and
server share the processors of the machine, so that a client that needs less CPU leaves more to its server.

## Over a network

Clients and servers are processes of one machine, connected by TCP over its loopback interface. **The servers differ**: a
mock server, which only counts, is faster than Redis. "Real times" is
%s.
CPU per operation is that of the client only, which makes it the fairest comparison.

`, realTimesAre())
	for _, at := range []struct {
		workload
		keys       int
		goroutines []int
	}{{increase, fewKeys, r.plan.goroutines}, {hit, fewKeys, r.plan.goroutines}, {hit, 1, oneKeyGoroutines}} {
		fmt.Fprintf(w, "### `%s`, %s\n\n", at.name, plural(at.keys, "key"))
		rows(w, strings.Fields("client >goroutines >operations/s >p50 >p99 >CPU/operation >allocations/operation"), r.networkRows(at.workload, at.keys, at.goroutines))
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "### Sparse keys\n\n")
	rows(w, []string{"client", ">keys", ">hits/s", ">p50", ">p99", ">hits/window", ">requests/window", ">to open", ">INSERTs/window", ">server time/window", ">server time/hit"}, r.sparseRows())
	fmt.Fprintf(w, `
Windows of %v and a limit of %d, so that most hits open a window. No key is new. The "old server" is a mock server that
takes as long for each request as a real one that has made %d records: %v, and %v more for an INSERT. Requests are those
per opened window; those "to open" are all but the UPDATE and QUERY of each further hit that was allowed. So they contain
the requests of denied hits, of which there are many with 5000 keys. Server time is what the requests take on such a server,
or the processor time that Redis has used.

`, sparseScale, sparseLimit, servicetime.OldAge, servicetime.TCP.Request, servicetime.Creation(servicetime.OldAge))
	fmt.Fprintf(w, "## Leases\n\n")
	r.reportLeases(w)
	fmt.Fprintf(w, "## In the process\n\n")
	r.reportAlgorithms(w)
	fmt.Fprintf(w, "\n### HTTP middleware\n\n")
	r.reportMiddlewares(w)
	fmt.Fprint(w, "\n## What each contender does\n\n")
	for _, c := range []workload{increase, hit, sparse, algorithms, middlewares} {
		var all [][]string
		for _, c := range c.contenders {
			all = append(all, []string{c.name, c.does})
		}
		rows(w, []string{"`" + c.name + "`", "is"}, all)
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, `A fixed window allows as many hits as the limit between its start and its end. A bucket that refills, as GCRA has it,
spreads the hits: it has no end, and allows up to twice the limit within one scale. Neither can replace the other. A
package in the process limits each process separately.

The limits are so high that no hit is denied. Keys are picked at random. Clients have their defaults. Each measurement
starts a new client and lets it warm up. The process holds 64 MiB of other memory, so that the garbage collector runs as
rarely as in a service.
`)
}

// networkRows returns the figures of all contenders of a workload.
func (r *results) networkRows(w workload, keys int, goroutines []int) (all [][]string) {
	for _, n := range goroutines {
		for _, c := range w.contenders {
			of := func(f figure) float64 { return load.Median(r.each(measurement{w.name, c.name, keys, n}, f)) }
			all = append(all, []string{
				c.name, fmt.Sprint(n), count(of(perSecond)), duration(of(p50)), duration(of(p99)), duration(of(cpu)), fmt.Sprintf("%.2f", of(allocs)),
			})
		}
	}
	return all
}

// requirementRows returns requirements, and whether they hold.
func requirementRows(requirements []requirement) (all [][]string) {
	for _, c := range requirements {
		m := load.Median(c.measured)
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

// rows writes a Markdown table. A title that begins with > is of a column of numbers.
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

// count formats a number with three digits and with commas.
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

// duration formats nanoseconds.
func duration(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	return load.FormatDuration(time.Duration(ns))
}

// decimal formats a number with two decimals.
func decimal(f float64) string {
	if math.IsNaN(f) {
		return "-"
	}
	return fmt.Sprintf("%.2f", f)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
