package main

import (
	"bytes"
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/throttr-go/throttr/benchmarks/svg"
	"github.com/throttr-go/throttr/internal/tools/load"
)

// line is a line of a chart.
type line struct {
	contender string
	color     color.RGBA
	shape     draw.GlyphDrawer
}

// lines are the lines of all charts. Their colors are distinct for color-blind readers, too (Okabe
// and Ito).
var lines = []line{
	{oursReal, color.RGBA{86, 180, 233, 255}, draw.RingGlyph{}},
	{"throttr on Redis", color.RGBA{230, 159, 0, 255}, draw.SquareGlyph{}},
	{"rueidis", color.RGBA{213, 94, 0, 255}, draw.BoxGlyph{}},
	{"go-redis", color.RGBA{0, 158, 115, 255}, draw.TriangleGlyph{}},
	{"redis_rate", color.RGBA{204, 121, 167, 255}, draw.PyramidGlyph{}},
}

// charts returns the SVG files by path.
func (r *results) charts() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range []struct {
		file, title, axis, workload string
		figure                      figure
	}{
		{"hit-throughput", "hit, 1000 keys", "thousand per second", "hit", perSecond},
		{"hit-p99", "hit, 1000 keys", "99th percentile in µs", "hit", p99},
	} {
		p := plot.New()
		for _, style := range []*text.Style{
			&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
		} {
			style.Font.Variant = "Sans"
		}
		p.Title.Text = c.title
		p.X.Label.Text = "goroutines"
		p.Y.Label.Text = c.axis
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = ticksAt(r.plan.goroutines)
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
		p.Add(plotter.NewGrid())
		for _, l := range lines {
			points := plotter.XYs{}
			for _, n := range r.plan.goroutines {
				if y := load.Median(r.each(measurement{c.workload, l.contender, fewKeys, n}, c.figure)); y > 0 {
					points = append(points, plotter.XY{X: float64(n), Y: y / 1000})
				}
			}
			if len(points) < 2 {
				continue
			}
			drawn, marks, err := plotter.NewLinePoints(points)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.file, err)
			}
			drawn.Color, drawn.Width = l.color, vg.Points(1.5)
			marks.Color, marks.Shape, marks.Radius = l.color, l.shape, vg.Points(3)
			p.Add(drawn, marks)
			p.Legend.Add(l.contender, drawn, marks)
		}
		p.Y.Max *= 5 // for the legend
		canvas := vgsvg.New(14*vg.Centimeter, 10*vg.Centimeter)
		p.Draw(draw.New(canvas))
		var drawing bytes.Buffer
		if _, err := canvas.WriteTo(&drawing); err != nil {
			return nil, err
		}
		// If the font is missing, use another one without serifs.
		files["charts/"+c.file+".svg"] = svg.WithDarkLook(bytes.ReplaceAll(drawing.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,sans-serif")))
	}
	return files, nil
}

// ticksAt returns ticks at these numbers only.
func ticksAt(numbers []int) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, n := range numbers {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: strconv.Itoa(n)})
	}
	return ticks
}
