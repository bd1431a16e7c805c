package main

import (
	"context"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

// screen is top on a terminal. It implements tea.Model.
type screen struct {
	every         time.Duration
	sample        sampler
	sampling      sync.Mutex
	ctx           context.Context // ends with the program
	view          frame           // nil: none yet
	err           error           // of the first sample
	width, height int
}

// sampledMessage is the message that a sample was taken.
type sampledMessage struct {
	view frame
	err  error
}

// heading is the style of the names of columns.
var heading = lipgloss.NewStyle().Bold(true)

// newScreen returns the screen of the views that sample returns.
func newScreen(every time.Duration, sample sampler) *screen {
	return &screen{every: every, sample: sample, width: 80, height: 24}
}

// run shows views until ctx ends or the user quits.
func (s *screen) run(ctx context.Context, options ...tea.ProgramOption) error {
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(ctx)
	_, err := tea.NewProgram(s, append(options, tea.WithContext(ctx), tea.WithoutSignalHandler())...).Run()
	cancel()
	s.sampling.Lock() // the last sample has ended, and there will be none
	defer s.sampling.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil
	case s.err != nil:
		return s.err
	}
	return err
}

// next takes a sample.
func (s *screen) next() tea.Msg {
	s.sampling.Lock()
	defer s.sampling.Unlock()
	if s.ctx.Err() != nil {
		return nil
	}
	v, err := s.sample(s.ctx)
	return sampledMessage{v, err}
}

// Init implements tea.Model. It takes the first sample.
func (s *screen) Init() tea.Cmd { return s.next }

// Update implements tea.Model.
func (s *screen) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "Q", "ctrl+c", "ctrl+d":
			return s, tea.Quit
		}
	case sampledMessage:
		if m.err != nil && s.view == nil {
			s.err = m.err
			return s, tea.Quit
		}
		s.view = m.view
		return s, tea.Every(s.every, func(time.Time) tea.Msg { return s.next() })
	}
	return s, nil
}

// View implements tea.Model.
func (s *screen) View() tea.View {
	v := tea.NewView("")
	v.AltScreen = true
	if s.view == nil {
		return v
	}
	lines := s.view.lines(s.width, s.height, "  q: quit")
	for i, line := range lines {
		if strings.HasPrefix(line, "server ") || strings.HasPrefix(line, "key ") {
			lines[i] = heading.Render(line)
		}
	}
	v.SetContent(strings.Join(lines, "\n"))
	return v
}
