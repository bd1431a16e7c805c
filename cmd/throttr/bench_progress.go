package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress is a line that tells how far things are, about once a second: on a terminal the
// same one over and over, elsewhere one below the other.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time // when it was told
	shown    bool      // on the terminal
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, last: time.Now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// tell shows another line, unless the last one is too young.
func (p *progress) tell(format string, args ...any) {
	const second = 990 * time.Millisecond // ticks are not quite even
	if time.Since(p.last) < second {
		return
	}
	p.last = time.Now()
	line := fmt.Sprintf(format, args...)
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	p.shown = true
	fmt.Fprintf(p.w, "\r%s\x1b[K", line)
}

// done takes the line away from a terminal.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
