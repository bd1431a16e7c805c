package main

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/throttr-go/throttr/internal/intervals"
)

// Colors that are distinct for color-blind readers, too.
var (
	allowed = color.RGBA{0, 114, 178, 255}
	refused = color.RGBA{217, 217, 217, 255}
)

// draw returns the chart as SVG: a row of steps for each algorithm. The height of a step
// is the number of hits that were sent in a time; the dark part of it are those that were allowed.
func (c *chart) draw(rows []row) ([]byte, error) {
	plots := make([][]*plot.Plot, len(rows))
	for i, r := range rows {
		p, err := r.plot()
		if err != nil {
			return nil, err
		}
		plots[i] = []*plot.Plot{p}
	}
	first := plots[0][0]
	first.Title.Text = fmt.Sprintf("%s\nallowed (blue) and refused (gray); the limit is %d in %v\n%s", c.title, limit, scale, first.Title.Text)
	canvas := vgsvg.New(22*vg.Centimeter, vg.Length(3*len(rows)+1)*vg.Centimeter)
	page := draw.New(canvas)
	page.SetColor(color.White) // the page that shows it may be dark
	page.Fill(page.Path())
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadLeft: vg.Points(10), PadRight: vg.Points(10)}
	for i, row := range plot.Align(plots, tiles, page) {
		plots[i][0].Draw(row[0])
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// If the font is missing, use another one without serifs.
	return bytes.ReplaceAll(svg.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,sans-serif")), nil
}

// plot returns the row as a plot of its own.
func (r *row) plot() (*plot.Plot, error) {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label} {
		style.Font.Variant = "Sans"
	}
	p.Title.Text = fmt.Sprintf("%v: %d allowed, at most %d in any %v", r.algorithm, len(r.hits), intervals.Busiest(r.hits, scale).Hits, scale)
	p.HideY()
	for _, steps := range []struct {
		hits  []int
		color color.Color
	}{{r.sent[:], refused}, {r.allowed[:], allowed}} {
		points := make(plotter.XYs, len(steps.hits)+1)
		for i, n := range slices.Concat(steps.hits, []int{0}) {
			points[i] = plotter.XY{X: (time.Duration(i) * bin).Seconds(), Y: float64(n)}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.StepStyle, line.FillColor, line.Width = plotter.PostStep, steps.color, 0
		p.Add(line)
	}
	var ticks plot.ConstantTicks
	for at := time.Duration(0); at <= length; at += scale {
		ticks = append(ticks, plot.Tick{Value: at.Seconds(), Label: at.String()})
	}
	p.X.Tick.Marker = ticks
	return p, nil
}
