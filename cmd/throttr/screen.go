package main

import (
	"io"
	"os"
	"strings"
	"sync"
)

// screen is a terminal that top draws on. Its methods do nothing on a nil screen.
type screen struct {
	out     *os.File
	restore func() // the terminal's mode
	sizes   <-chan os.Signal
	quits   chan struct{} // closed when the user quits
	closing sync.Once
}

// The escape sequences that every terminal of today knows.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another buffer, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// openScreen returns a screen if both stdin and stdout are terminals, or else nil.
func openScreen(stdin io.Reader, stdout io.Writer) *screen {
	in, ok := stdin.(*os.File)
	if !ok {
		return nil
	}
	out, ok := stdout.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return nil
	}
	if _, _, ok := terminalSize(out); !ok {
		return nil
	}
	restore, ok := readKeys(in)
	if !ok {
		return nil
	}
	s := &screen{out: out, restore: restore, sizes: sizeChanges(), quits: make(chan struct{})}
	go s.watch(in)
	io.WriteString(out, enterScreen)
	return s
}

// watch waits for the key that quits. It ends with the program.
func (s *screen) watch(in io.Reader) {
	const endOfText = 4 // Ctrl-D
	key := make([]byte, 1)
	for {
		n, err := in.Read(key)
		if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q' || key[0] == endOfText) {
			close(s.quits)
			return
		}
	}
}

// close leaves the terminal as it was.
func (s *screen) close() {
	if s == nil {
		return
	}
	s.closing.Do(func() {
		io.WriteString(s.out, leaveScreen)
		s.restore()
	})
}

// size returns the number of columns and rows.
func (s *screen) size() (width, height int) {
	width, height, ok := terminalSize(s.out)
	if !ok || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw replaces what is on the screen.
func (s *screen) draw(lines []string) error {
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// resized returns a channel that receives when the size has changed.
func (s *screen) resized() <-chan os.Signal {
	if s == nil {
		return nil
	}
	return s.sizes
}

// quit returns a channel that is closed when the user quits.
func (s *screen) quit() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.quits
}
