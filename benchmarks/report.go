package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// sections are the tables of RESULTS.md: one for each unit of a benchmark. The first has ratios, too.
var sections = []struct{ bench, title, text, units string }{
	{"Redis", "Hits over a network", "A take on Redis, 1,000 keys, beside scripts through rueidis.",
		"calls/s p50-ns p99-ns cpu-ns server-cpu-ns"},
	{"RedisOneKey", "One key", "The same of a key that all share.", "calls/s p50-ns p99-ns cpu-ns server-cpu-ns"},
	{"Postgres", "PostgreSQL", "A take in an unlogged table, 1,000 keys, beside an INSERT ON CONFLICT for each call.",
		"calls/s p50-ns cpu-ns server-cpu-ns"},
	{"PostgresRefused", "PostgreSQL, limits reached", "", "calls/s p50-ns cpu-ns server-cpu-ns"},
	{"Memory", "In the process", "", "ns/op"},
	{"HTTP", "HTTP", "Requests over connections; client and server are one process.", "calls/s p99-ns cpu-ns"},
	{"InFlight", "In flight", "A pair of acquire and release on Redis.", "calls/s p50-ns p99-ns"},
	{"Lease", "Leases", "Eight clients of Redis with four callers each, one key; a denial is a call, too.",
		"calls/s server-cpu-ns"},
	{"Server", "Throttr servers", "", "calls/s p50-ns p99-ns"},
	{"Outage", "Outages", "2,000 calls a second, while Redis hangs or is down for 5 s.",
		"p50-ns p99-ns slowest-ns s-until-back"},
}

// report returns RESULTS.md.
func (s *side) report() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Results\n\nWritten by `go -C benchmarks run .`: medians of %d rounds of %s. Columns are numbers of keys and of callers. In parentheses: the ratio to the first row, the median of those of\n"+
		"each round. Clients and servers share a machine over loopback: only ratios carry over to others.\n\n- commit %s\n- %s, %d processors, %s\n- %s\n",
		*rounds, *benchtime, strings.TrimSpace(output("git", "describe", "--always", "--dirty")),
		strings.TrimSpace(output("sh", "-c", "sed -n 's/model name.*: //p' /proc/cpuinfo | head -n 1")),
		runtime.NumCPU(), runtime.Version(), strings.TrimSpace(output("redis-server", "--version")))
	b.WriteString(output("go", "list", "-m", "-f",
		"{{if not (or .Indirect .Main .Replace)}}- {{.Path}} {{.Version}}{{end}}", "all"))
	for _, c := range charts {
		fmt.Fprintf(&b, "\n![%s](charts/%s.svg)\n", c.title, c.file)
	}
	for _, sec := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", sec.title, sec.text)
		for i, unit := range strings.Fields(sec.units) {
			s.table(&b, sec.bench, unit, i == 0)
		}
	}
	return b.Bytes()
}

// table writes what was measured in a unit: a row for each contender, a column for each load.
func (s *side) table(b *bytes.Buffer, bench, unit string, ratios bool) {
	var contenders, loads []string
	for _, r := range s.rows {
		if r.bench == bench && r.figures[unit] != nil {
			contenders, loads = with(contenders, r.contender), with(loads, r.load)
		}
	}
	columns := strings.NewReplacer("keys=", "", "/callers=", " keys × ").Replace(strings.Join(loads, " | "))
	fmt.Fprintf(b, "\n| %s | %s |\n|---|%s\n", unit, columns, strings.Repeat("---:|", len(loads)))
	for _, c := range contenders {
		fmt.Fprintf(b, "| %s |", c)
		for _, load := range loads {
			own, base := s.row(bench, load, c).figures[unit], s.row(bench, load, contenders[0]).figures[unit]
			fmt.Fprintf(b, " %s", format(median(own), unit))
			if ratios && c != contenders[0] && len(base) == len(own) {
				quotients := slices.Clone(own)
				for i := range own {
					quotients[i] /= base[i]
				}
				fmt.Fprintf(b, " (%.2f)", median(quotients))
			}
			b.WriteString(" |")
		}
		b.WriteByte('\n')
	}
}

// with appends what a list does not have.
func with(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// median returns NaN of nothing.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// format has three digits.
func format(f float64, unit string) string {
	switch {
	case math.IsNaN(f):
		return "-"
	case strings.HasPrefix(unit, "ns") || strings.HasSuffix(unit, "-ns"):
		return time.Duration(f).Round(time.Duration(math.Pow(10, math.Floor(math.Log10(max(f, 100)))-2))).String()
	case f >= 1e6:
		return fmt.Sprintf("%.3g M", f/1e6)
	case f >= 1e3:
		return fmt.Sprintf("%.3g k", f/1e3)
	}
	return fmt.Sprintf("%.3g", f)
}

var (
	callers      = []int{1, 2, 4, 8, 64, 512}
	onRedisLines = []string{"throttr take", "throttr bucket", "throttr take, go-redis", "script INCR",
		"script GCRA", "redis_rate"}
)

// charts are lines over the callers or keys of a load, which has a number in place of %d. One on the axis is per units.
var charts = []struct {
	file, title, x, y, bench, load, unit string
	at                                   []int
	per                                  float64
	contenders                           []string
}{
	{"redis-throughput", "Calls a second on Redis, 1,000 keys", "callers", "thousand calls a second", "Redis",
		"keys=1000/callers=%d", "calls/s", callers, 1e3, onRedisLines},
	{"redis-p99", "99th percentile of a call on Redis, 1,000 keys", "callers", "microseconds", "Redis",
		"keys=1000/callers=%d", "p99-ns", callers, 1e3, onRedisLines},
	{"memory", "Time of a call in the process, one caller", "keys", "nanoseconds", "Memory", "keys=%d/callers=1",
		"ns/op", []int{1, 1000, 100_000, 1_000_000}, 1,
		[]string{"throttr fixed", "throttr bucket", "go-limiter", "x/time/rate in a sync.Map", "throttled", "ulule"}},
}

// colors are distinct for color-blind readers, and on a light and a dark page (Okabe and Ito).
var (
	colors = []color.RGBA{{86, 180, 233, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}, {213, 94, 0, 255},
		{204, 121, 167, 255}, {128, 128, 128, 255}}
	shapes = []draw.GlyphDrawer{draw.RingGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.BoxGlyph{},
		draw.PyramidGlyph{}, draw.CrossGlyph{}}
)

// dark replaces white and black where a browser prefers dark colors. The charts have their colors in style attributes,
// which only !important overrides.
const dark = `<style>@media (prefers-color-scheme: dark) {
[style*="fill:#FFFFFF"] { fill: #0d1117 !important }
[style*="stroke:#000000"] { stroke: #9198a1 !important }
[style*="fill:#000000"], text { fill: #e6edf3 !important }
}</style>
<g `

// charts writes the charts.
func (s *side) charts() error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	for _, c := range charts {
		p, legend := plot.New(), plot.NewLegend()
		p.Title.Text = c.title
		p.X.Label.Text, p.Y.Label.Text = c.x, c.y
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		legend.Top, legend.Left = true, true
		legend.Padding = vg.Points(4)
		p.Add(plotter.NewGrid())
		p.NominalX(strings.Fields(strings.Trim(fmt.Sprint(c.at), "[]"))...)
		for i, contender := range c.contenders {
			points := plotter.XYs{}
			for at, n := range c.at {
				if y := median(s.row(c.bench, fmt.Sprintf(c.load, n), contender).figures[c.unit]); y > 0 {
					points = append(points, plotter.XY{X: float64(at), Y: y / c.per})
				}
			}
			line, marks, err := plotter.NewLinePoints(points)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", c.file, contender, err)
			}
			line.Color, line.Width = colors[i], vg.Points(1.5)
			marks.Color, marks.Shape = colors[i], shapes[i]
			marks.Radius = vg.Points(3)
			p.Add(line, marks)
			legend.Add(contender, line, marks)
		}
		const width, beside = 20 * vg.Centimeter, 7 * vg.Centimeter
		canvas := vgsvg.New(width, 9*vg.Centimeter)
		page := draw.New(canvas)
		page.SetColor(color.White)
		page.Fill(page.Rectangle.Path())
		p.Draw(draw.Crop(page, 0, -beside, 0, 0))
		legend.Draw(draw.Crop(page, width-beside+vg.Points(8), 0, 0, -vg.Points(24)))
		var svg bytes.Buffer
		if _, err := canvas.WriteTo(&svg); err != nil {
			return err
		}
		// If the font is missing, use another one without serifs.
		drawing := bytes.ReplaceAll(svg.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,sans-serif"))
		if err := os.WriteFile("charts/"+c.file+".svg", bytes.Replace(drawing, []byte("<g "), []byte(dark), 1), 0o644); err != nil {
			return err
		}
	}
	return nil
}
