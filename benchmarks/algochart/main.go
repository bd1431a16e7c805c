// Command algochart draws the charts of docs/algorithms.md: which hits of a bursty and of a steady
// caller each algorithm of package memory allows.
//
//	go -C benchmarks run ./algochart -write   # writes them to docs/charts
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/throttr-go/throttr/benchmarks/svg"
	"github.com/throttr-go/throttr/internal/intervals"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/window"
)

const (
	scale  = 10 * time.Second
	limit  = 100
	length = 4 * scale // of a chart
	bin    = scale / 20
)

// chart is a file of docs/charts.
type chart struct {
	file, title string
	sent        []time.Duration // when the caller sends its hits
}

// charts returns all charts.
func charts() []chart {
	bursty := []time.Duration{0}
	for _, at := range []time.Duration{9, 10, 20, 25, 35} {
		bursty = append(bursty, evenly(at*time.Second, (at+1)*time.Second, 150)...)
	}
	return []chart{
		{"algorithms-bursty", "A bursty caller: 1 hit at 0 s, and then bursts of 150 hits in a second", bursty},
		{"algorithms-steady", "A steady caller: 16 hits a second", evenly(0, length, 640)},
	}
}

// evenly returns n times from begin on, evenly distributed until end.
func evenly(begin, end time.Duration, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = begin + time.Duration(i)*(end-begin)/time.Duration(n)
	}
	return times
}

// row is what one algorithm does with the hits of a chart.
type row struct {
	algorithm     window.Algorithm
	sent, allowed [length / bin]int
	hits          []intervals.Hit // those that were allowed
}

// rows returns the rows of a chart.
func (c *chart) rows() ([]row, error) {
	algorithms := []window.Algorithm{window.FixedWindow, window.AlignedWindow, window.SlidingWindow, window.SlidingLog, window.TokenBucket}
	rows := make([]row, len(algorithms))
	for i, a := range algorithms {
		rows[i].algorithm = a
		if err := rows[i].send(c.sent); err != nil {
			return nil, fmt.Errorf("%s: %v: %w", c.file, a, err)
		}
	}
	return rows, nil
}

// send sends hits to a backend in memory, whose clock shows their times.
func (r *row) send(times []time.Duration) error {
	now := time.Unix(0, 0)
	backend := memory.New(memory.WithClock(func() time.Time { return now }))
	defer backend.Close()
	l := window.Limit{Max: limit, Scale: scale, Algorithm: r.algorithm}
	for _, at := range times {
		now = time.Unix(0, int64(at))
		w, err := backend.Hit(context.Background(), "caller", l, 1)
		if err != nil {
			return err
		}
		r.sent[at/bin]++
		if !w.Refused && w.Count <= limit {
			r.allowed[at/bin]++
			r.hits = append(r.hits, intervals.Hit{At: at, N: 1})
		}
	}
	return nil
}

// files returns the charts as SVG, by their paths from the folder of the module.
func files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range charts() {
		rows, err := c.rows()
		if err != nil {
			return nil, err
		}
		drawn, err := c.draw(rows)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		files["../docs/charts/"+c.file+".svg"] = svg.WithDarkLook(drawn)
	}
	return files, nil
}

func main() {
	write := flag.Bool("write", false, "write the charts to docs/charts")
	flag.Parse()
	if err := run(*write); err != nil {
		fmt.Fprintln(os.Stderr, "algochart:", err)
		os.Exit(1)
	}
}

func run(write bool) error {
	files, err := files()
	if err != nil {
		return err
	}
	for path, chart := range files {
		fmt.Printf("%s: %d bytes\n", path, len(chart))
		if !write {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, chart, 0o644); err != nil {
			return err
		}
	}
	return nil
}
