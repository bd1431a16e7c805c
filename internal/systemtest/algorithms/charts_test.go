package algorithms_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/memory"
)

var writeCharts = flag.Bool("charts.write", false, "write docs/charts")

// step is the width of a bar, half a second.
const step = 500 * time.Millisecond

// panel is what a caller sent under an algorithm, and what of it was allowed, in each step.
type panel struct {
	algorithm     throttr.Algorithm
	sent, allowed [80]int
}

// bursts sends one hit, and then 150 in a second from 9, 10, 20, 25 and 35 s on.
func bursts(at time.Duration) int {
	switch at / time.Second {
	case 0:
		if at == 0 {
			return 1
		}
	case 9, 10, 20, 25, 35:
		return 75
	}
	return 0
}

// steady sends 16 hits a second.
func steady(time.Duration) int { return 8 }

// draw counts what a limit of 100 in 10 s allows of a caller.
func draw(t *testing.T, algorithm throttr.Algorithm, send func(at time.Duration) int) panel {
	p := panel{algorithm: algorithm}
	synctest.Test(t, func(t *testing.T) {
		limiter := throttr.NewRateLimit(memory.New())
		limit := throttr.Limit{Max: 100, Scale: 10 * time.Second, Algorithm: algorithm}
		for i := range p.sent {
			p.sent[i] = send(time.Duration(i) * step)
			for range p.sent[i] {
				res, err := limiter.Take(t.Context(), "a", limit, 1)
				require.NoError(t, err)
				if res.Allowed {
					p.allowed[i]++
				}
				time.Sleep(step / 100)
			}
			time.Sleep(step - time.Duration(p.sent[i])*step/100)
		}
	})
	return p
}

// most returns the largest number that was allowed in adjacent steps of 10 s.
func (p panel) most() int {
	highest := 0
	for i := range p.allowed {
		sum := 0
		for _, n := range p.allowed[max(0, i-19) : i+1] {
			sum += n
		}
		highest = max(highest, sum)
	}
	return highest
}

// svg draws panels below one another, in colors for light and for dark pages.
func svg(title string, panels []panel) string {
	const width, height, left = 640, 84, 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Arial,sans-serif" font-size="13">
<style>text{fill:#1f2328}.sent{fill:#b8bfc7}.allowed{fill:#0969da}.axis{stroke:#59636e}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.sent{fill:#4b535d}.allowed{fill:#4493f8}.axis{stroke:#9198a1}}</style>
<text x="%d" y="16">%s</text>
`, width, 24+height*len(panels), left, title)
	for i, p := range panels {
		axis := 24 + height*i + 66
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%v: at most %d in any 10 s</text>\n", left, axis-50, p.algorithm, p.most())
		for s, sent := range p.sent {
			x := left + s*(width-2*left)/len(p.sent)
			bar(&b, "sent", x, axis, sent*44/slices.Max(p.sent[:]))
			bar(&b, "allowed", x, axis, p.allowed[s]*44/slices.Max(p.sent[:]))
		}
		fmt.Fprintf(&b, "<path class=\"axis\" d=\"M%d %dH%d\"/>\n", left, axis, width-left)
		for s := 0; s <= 40; s += 10 {
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" font-size=\"11\">%d s</text>\n", left+2+s*(width-2*left-8)/40, axis+13, s)
		}
	}
	return b.String() + "</svg>\n"
}

func bar(b *strings.Builder, class string, x, axis, height int) {
	if height > 0 {
		fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"7\" height=\"%d\"/>\n", class, x, axis-height, height)
	}
}

// The charts of the documents are what the backend in memory does. Write them anew with -charts.write.
func TestChartsOfAlgorithms(t *testing.T) {
	all := []throttr.Algorithm{throttr.FixedWindow, throttr.AlignedWindow, throttr.SlidingWindow, throttr.SlidingLog, throttr.TokenBucket}
	for _, c := range []struct {
		file, title string
		algorithms  []throttr.Algorithm
		send        func(time.Duration) int
	}{
		{"two-bursts", "A limit of 100 in 10 s: what is allowed (blue) of bursts of 150 (gray)", []throttr.Algorithm{throttr.FixedWindow, throttr.SlidingLog}, bursts},
		{"algorithms-bursty", "A limit of 100 in 10 s: what is allowed (blue) of bursts of 150 (gray)", all, bursts},
		{"algorithms-steady", "A limit of 100 in 10 s: what is allowed (blue) of 16 takes a second (gray)", all, steady},
	} {
		var panels []panel
		for _, algorithm := range c.algorithms {
			panels = append(panels, draw(t, algorithm, c.send))
		}
		file, drawing := "../../../docs/charts/"+c.file+".svg", svg(c.title, panels)
		if *writeCharts {
			require.NoError(t, os.WriteFile(file, []byte(drawing), 0o644))
		}
		saved, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(saved), drawing, "run go test ./internal/systemtest/algorithms -run Charts -charts.write")
	}
}
