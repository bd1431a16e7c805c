package dashboard_test

import (
	"bytes"
	"flag"
	"image/color"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

var writePicture = flag.Bool("picture.write", false, "write docs/charts/dashboard.svg")

// Colors are distinct for color-blind readers, and on a light and a dark page (Okabe and Ito).
var colors = []color.RGBA{{86, 180, 233, 255}, {230, 159, 0, 255}, {0, 158, 115, 255}}

// units are those of the dashboard: the text at an axis, and by which factor values are larger.
var units = map[string]struct {
	text   string
	factor float64
}{
	"percentunit": {"percent", 100},
	"reqps":       {"a second", 1},
	"s":           {"milliseconds", 1000},
	"short":       {"number", 1},
}

// dark replaces white and black where a browser prefers dark colors. The drawing has its colors in style attributes,
// which only !important overrides.
const dark = `<style>@media (prefers-color-scheme: dark) {
[style*="fill:#FFFFFF"] { fill: #0d1117 !important }
[style*="stroke:#000000"] { stroke: #9198a1 !important }
[style*="fill:#000000"], text { fill: #e6edf3 !important }
}</style>
<g `

// drawPicture draws the panels of the dashboard, at their places, with what Prometheus says of the hour.
func drawPicture(t *testing.T, addr string) {
	const cell, cellHeight = vg.Centimeter, 0.75 * vg.Centimeter
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	all := panels(t)
	last := all[len(all)-1].GridPos
	canvas := vgsvg.New(24*cell, vg.Length(last.Y+last.H)*cellHeight)
	page := draw.New(canvas)
	page.SetColor(color.White)
	page.Fill(page.Rectangle.Path())
	for _, panel := range all {
		p, legend := plot.New(), plot.NewLegend()
		unit, known := units[panel.FieldConfig.Defaults.Unit]
		require.True(t, known, panel.Title)
		p.Title.Text, p.X.Label.Text, p.Y.Label.Text = panel.Title, "minutes", unit.text
		p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 15, Label: "15"}, {Value: 30, Label: "30"}, {Value: 45, Label: "45"}, {Value: 60, Label: "60"}}
		legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
		p.Add(plotter.NewGrid())
		lines := 0
		for _, target := range panel.Targets {
			for _, s := range ask(t, addr, target.Expr) {
				points := plotter.XYs{}
				for i, v := range s.value {
					points = append(points, plotter.XY{X: s.minutes[i], Y: v * unit.factor})
				}
				if len(points) == 0 {
					continue
				}
				line, err := plotter.NewLine(points)
				require.NoError(t, err)
				require.Less(t, lines, len(colors), panel.Title)
				line.Color, line.Width = colors[lines], vg.Points(1.5)
				p.Add(line)
				legend.Add(named(target.LegendFormat, s.labels), line)
				lines++
			}
		}
		p.X.Min, p.X.Max = 0, 60
		p.Y.Min, p.Y.Max = 0, 1.1*p.Y.Max
		at := panel.GridPos
		left, top := vg.Length(at.X)*cell, vg.Length(at.Y)*cellHeight
		box := draw.Crop(page, left, -(24*cell - left - vg.Length(at.W)*cell),
			page.Max.Y-top-vg.Length(at.H)*cellHeight+vg.Points(6), -top-vg.Points(6))
		const beside = 4.2 * vg.Centimeter
		p.Draw(draw.Crop(box, vg.Points(12), -beside, 0, 0))
		legend.Draw(draw.Crop(box, box.Max.X-box.Min.X-beside+vg.Points(6), 0, 0, -vg.Points(20)))
	}
	var svg bytes.Buffer
	_, err := canvas.WriteTo(&svg)
	require.NoError(t, err)
	if !*writePicture {
		return
	}
	// If the font is missing, use another one without serifs.
	drawing := strings.ReplaceAll(svg.String(), "Liberation Sans", "Liberation Sans,Arial,sans-serif")
	require.NoError(t, os.WriteFile("../../docs/charts/dashboard.svg", []byte(strings.Replace(drawing, "<g ", dark, 1)), 0o644))
}

// named returns the name of a line: a legend's format with the values of labels.
func named(format string, labels map[string]string) string {
	for name, value := range labels {
		format = strings.ReplaceAll(format, "{{"+name+"}}", value)
	}
	return format
}
