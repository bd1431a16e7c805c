// Package svg gives charts a dark look, for readers whose browser prefers one.
package svg

import "bytes"

// dark replaces white and black where a browser prefers dark colors. The charts have their colors in style
// attributes, which only !important overrides.
const dark = `<style>@media (prefers-color-scheme: dark) {
[style*="fill:#FFFFFF"] { fill: #0d1117 !important }
[style*="fill:#D9D9D9"] { fill: #3d444d !important }
[style*="stroke:#000000"] { stroke: #9198a1 !important }
[style*="fill:#000000"], text { fill: #e6edf3 !important }
}</style>
`

// WithDarkLook adds the dark look to a chart, which has a light one.
func WithDarkLook(chart []byte) []byte {
	return bytes.Replace(chart, []byte("<g "), []byte(dark+"<g "), 1)
}
