package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/throttr-go/throttr/mockserver"
)

var mockCommand = command{
	name: "mock", local: true,
	short: "play a server, until it is interrupted",
	long: `It prints the address that it listens on, and keeps everything in memory. Hazards are what a
real server does and should not: grace (H1), lateexpiry (H2), wrap (H3), events (H8) and
lockup (H12), see docs/protocol.md. At the end it tells what clients have done that would
have crashed or stalled a real server, or lost a response there.
Exit status 2: there was something of the kind.
`,
	examples: []string{
		"throttr mock -addr 127.0.0.1:9000 -size 2",
		"throttr mock -unix /tmp/throttr.sock -hazard grace=off,lateexpiry=on",
		"throttr mock -size 4 -service-time 3us",
	},
	define: func(f *flag.FlagSet) reader {
		var m mock
		f.StringVar(&m.addr, "addr", "127.0.0.1:9000", "`host:port` to listen on; port 0: a free one")
		f.StringVar(&m.unix, "unix", "", "`path` of a unix socket to listen on instead")
		f.IntVar(&m.size, "size", 2, "the value size: 1, 2, 4 or 8 `bytes`")
		durationVar(f, &m.service, "service-time", 0, "the `time` that each request takes, one at a time; a real server: 3us (default 0s: as fast as it goes)")
		f.Var(&m.hazards, "hazard", "hazards to switch, a `list` such as grace=off,lateexpiry=on (default: grace, wrap and events are on)")
		return func(args []string) (task, error) {
			if err := needArgs(args); err != nil {
				return nil, err
			}
			if m.unix != "" && isSet(f, "addr") {
				return nil, errors.New("-addr and -unix exclude each other")
			}
			return m.serve, nil
		}
	},
}

// mock is a mock server to be.
type mock struct {
	addr, unix string
	size       int
	service    time.Duration
	hazards    hazards
}

// mockRecord is a mock server in JSON.
type mockRecord struct {
	Address   string          `json:"address"`
	ValueSize int             `json:"value_size"`
	Hazards   map[string]bool `json:"hazards"`
	Service   float64         `json:"service_time_seconds,omitempty"`
}

// serve plays the server until ctx ends.
func (m *mock) serve(ctx context.Context, e *env) (bool, error) {
	network, addr := "tcp", m.addr
	if m.unix != "" {
		network, addr = "unix", m.unix
	}
	opts := []mockserver.Option{
		mockserver.WithAddr(network, addr), mockserver.WithValueSize(m.size), mockserver.WithServiceTime(m.service),
	}
	for h, on := range m.hazards {
		opts = append(opts, mockserver.WithHazard(h, on))
	}
	if m.service > 0 {
		runtime.GOMAXPROCS(1) // a real server has one thread
	}
	srv, err := mockserver.Start(opts...)
	if err != nil {
		return false, errors.New(strings.TrimPrefix(err.Error(), "mockserver: "))
	}
	defer srv.Close()
	m.announce(e.out, srv.Addr())
	if err := e.out.flush(); err != nil {
		return false, err
	}
	<-ctx.Done()
	srv.Close()
	violations := srv.Violations()
	for _, v := range violations {
		fmt.Fprintln(e.stderr, v)
	}
	switch n := len(violations); n {
	case 0:
		return true, nil
	case 1:
		return false, errors.New("1 violation, which a real server would not have taken so well")
	default:
		return false, fmt.Errorf("%d violations, which a real server would not have taken so well", n)
	}
}

// announce prints the address, and then what else there is to know.
func (m *mock) announce(out *output, addr string) {
	record := mockRecord{Address: addr, ValueSize: m.size, Hazards: map[string]bool{}, Service: m.service.Seconds()}
	var words []string
	for _, h := range allHazards {
		on, set := m.hazards[h.hazard]
		if !set {
			on = h.on
		}
		record.Hazards[h.name] = on
		words = append(words, h.name+"="+onOff(on))
	}
	if out.json != nil {
		out.add(record)
		return
	}
	out.table("")
	out.add(nil, addr)
	about := "values of " + sizeName(m.size) + ", hazards " + strings.Join(words, ",")
	if m.service > 0 {
		about += ", " + m.service.String() + " for each request"
	}
	out.add(nil, about)
}

// allHazards are the hazards by name, and whether they are on by default.
var allHazards = []struct {
	name   string
	hazard mockserver.Hazard
	on     bool
}{
	{"grace", mockserver.Grace, true},
	{"lateexpiry", mockserver.LateExpiry, false},
	{"wrap", mockserver.Wrap, true},
	{"events", mockserver.Events, true},
	{"lockup", mockserver.LockUp, false},
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// hazards is a flag: hazards that are to be on or off.
type hazards map[mockserver.Hazard]bool

// String implements flag.Value.
func (h *hazards) String() string { return "" }

// Set implements flag.Value.
func (h *hazards) Set(list string) error {
	if *h == nil {
		*h = hazards{}
	}
	for item := range strings.SplitSeq(list, ",") {
		name, state, _ := strings.Cut(item, "=")
		if state != "on" && state != "off" {
			return fmt.Errorf("%q is not of the form grace=on or grace=off", item)
		}
		hazard, ok := hazardNamed(name)
		if !ok {
			return fmt.Errorf("there is no hazard %q", name)
		}
		(*h)[hazard] = state == "on"
	}
	return nil
}

func hazardNamed(name string) (mockserver.Hazard, bool) {
	for _, h := range allHazards {
		if h.name == name {
			return h.hazard, true
		}
	}
	return 0, false
}
