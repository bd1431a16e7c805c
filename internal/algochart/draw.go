package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/throttr-go/throttr/internal/intervals"
)

// The measures of a chart, in pixels.
const (
	barWidth  = 8
	barHeight = 64 // of the highest bar
	rowHeight = barHeight + 30
	top       = 58 // above the first row
	left      = 20
	plotWidth = int(length/bin) * barWidth
	textWidth = 190 // to the right of the plot
)

// Colors that are distinct for color-blind readers, too, on a background of their own: the page may
// be light or dark.
const (
	background = "#ffffff"
	ink        = "#222222"
	allowed    = "#0072b2"
	refused    = "#d9d9d9"
)

// draw returns the chart as SVG: a row of bars for each algorithm. The height of a bar is the
// number of hits that were sent in a time; the lower part of it are those that were allowed.
func (c *chart) draw(rows []row) []byte {
	var b bytes.Buffer
	width, height := left+plotWidth+textWidth, top+len(rows)*rowHeight+24
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Liberation Sans,Arial,sans-serif" font-size="13" fill="%s">`+"\n",
		width, height, width, height, ink)
	fmt.Fprintf(&b, "<title>%s</title>\n", c.title)
	rect(&b, 0, 0, width, height, background)
	text(&b, left, 22, "start", c.title)
	rect(&b, left, 32, 10, 10, allowed)
	text(&b, left+16, 42, "start", "allowed")
	rect(&b, left+80, 32, 10, 10, refused)
	text(&b, left+96, 42, "start", fmt.Sprintf("refused; the limit is %d in %v", limit, scale))

	highest := 1
	for _, n := range rows[0].sent {
		highest = max(highest, n)
	}
	bottom := top + len(rows)*rowHeight - 10
	for at := time.Duration(0); at <= length; at += scale {
		x := left + int(at/bin)*barWidth
		fmt.Fprintf(&b, `<path d="M%d %dV%d" stroke="%s" stroke-dasharray="2 3" opacity="0.5"/>`+"\n", x, top, bottom, ink)
		text(&b, x, bottom+18, "middle", at.String())
	}
	for i, r := range rows {
		r.draw(&b, top+i*rowHeight+rowHeight-10, highest)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// draw draws the row, whose bars begin at the height y.
func (r *row) draw(b *bytes.Buffer, y, highest int) {
	for i, sent := range r.sent {
		if sent == 0 {
			continue
		}
		x, whole := left+i*barWidth+1, max(1, sent*barHeight/highest)
		part := (r.allowed[i]*barHeight + highest - 1) / highest
		rect(b, x, y-whole, barWidth-2, whole-part, refused)
		rect(b, x, y-part, barWidth-2, part, allowed)
	}
	fmt.Fprintf(b, `<path d="M%d %dH%d" stroke="%s"/>`+"\n", left, y, left+plotWidth, ink)
	x := left + plotWidth + 14
	text(b, x, y-38, "start", r.algorithm.String())
	text(b, x, y-20, "start", fmt.Sprintf("%d allowed", len(r.hits)))
	text(b, x, y-2, "start", fmt.Sprintf("at most %d in any %v", intervals.Busiest(r.hits, scale).Hits, scale))
}

func rect(b *bytes.Buffer, x, y, width, height int, fill string) {
	if height > 0 {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, width, height, fill)
	}
}

func text(b *bytes.Buffer, x, y int, align, text string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", x, y, align, text)
}
