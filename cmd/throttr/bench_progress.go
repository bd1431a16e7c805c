package main

import (
	"fmt"
	"io"
	"time"
)

// progress prints a line about once a second. On a terminal each line replaces the one before.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time // of the last line
	printed  bool      // there is a line on the terminal
}

func newProgress(w io.Writer) *progress {
	return &progress{w: w, terminal: isTerminal(w), last: time.Now()}
}

// start prints a line at once: the first of a phase.
func (p *progress) start(format string, args ...any) {
	p.last = time.Time{}
	p.printf(format, args...)
}

// printf prints a line, unless the last one is less than a second old.
func (p *progress) printf(format string, args ...any) {
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
	p.printed = true
	fmt.Fprintf(p.w, "\r%s\x1b[K", line)
}

// clear removes the line from a terminal.
func (p *progress) clear() {
	if p.printed {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.printed = false
	}
}
