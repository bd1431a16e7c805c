package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/throttr-go/throttr/mockserver"
)

func mockCommand(e *env) *cobra.Command {
	m := mock{made: -1}
	var made uint
	cmd := &cobra.Command{
		Use:   "mock",
		Short: "run a mock server, until it is interrupted",
		Long: `The server keeps all records in memory. It prints its address and its settings.
Hazards are harmful behavior of real servers, which can be switched on and off.
Their defaults:

` + hazardList() + `
docs/internals/protocol.md describes them. When it ends, the server prints the
requests that would have crashed or stalled a real server, or lost a response
there. The exit status is then 2.

With --real-service-time, requests take as long as on a real server on a quiet
machine: 6us each, and 4us more if they are alone, over TCP; 3.1us and 9us over
a Unix socket. With --slow-creation, an INSERT or SET takes 3us more on a new
server (0 records), and 140us more on one that has made 41000 records.`,
		Example: `  throttr mock --addr 127.0.0.1:9000 --size 2
  throttr mock --unix /tmp/throttr.sock --hazard grace=off,lateexpiry=on
  throttr mock --size 4 --real-service-time --slow-creation 41000`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if f.Changed("slow-creation") {
			m.made = int(made)
		}
		if m.hazards, err = parseHazards(m.switched); err != nil {
			return err
		}
		return m.serve(cmd.Context(), e)
	}
	f.StringVar(&m.addr, "addr", "127.0.0.1:9000", "`host:port` to listen on; port 0: a free one")
	f.StringVar(&m.unix, "unix", "", "`path` of a unix socket to listen on instead")
	cmd.MarkFlagsMutuallyExclusive("addr", "unix")
	f.IntVar(&m.size, "size", 2, "the value size: 1, 2, 4 or 8 `bytes`")
	durationVar(f, &m.service, "service-time", 0, "the `time` that each request takes, one after the other (default: no time)")
	f.BoolVar(&m.real, "real-service-time", false, "take as long as a real server")
	cmd.MarkFlagsMutuallyExclusive("service-time", "real-service-time")
	f.UintVar(&made, "slow-creation", 0, "make INSERT and SET as slow as if the server had made a `number` of records (H7)")
	f.StringToStringVar(&m.switched, "hazard", nil, "a `list` of hazards to switch, such as grace=off,lateexpiry=on")
	f.Lookup("hazard").DefValue = "" // it has none
	var hazards []string
	for _, h := range mockserver.Hazards() {
		_, name := hazardName(h)
		hazards = append(hazards, name+"=on", name+"=off")
	}
	complete(cmd, "hazard", hazards...)
	complete(cmd, "size", "1", "2", "4", "8")
	return cmd
}

// mock is the command line of a mock server.
type mock struct {
	addr, unix string
	size       int
	service    time.Duration
	real       bool                       // requests take as long as on a real server
	made       int                        // records, for the time that another one takes; negative: as other requests
	switched   map[string]string          // hazards by name, on or off
	hazards    map[mockserver.Hazard]bool // the same
}

// mockJSON is the JSON of a mock server.
type mockJSON struct {
	Address   string          `json:"address"`
	ValueSize int             `json:"value_size"`
	Hazards   map[string]bool `json:"hazards"`
	Service   float64         `json:"service_time_seconds,omitempty"`
	Real      bool            `json:"real_service_time,omitempty"`
	Made      *int            `json:"slow_creation,omitempty"`
}

// serve runs the server until ctx ends.
func (m *mock) serve(ctx context.Context, e *env) error {
	srv, err := mockserver.Start(m.options()...)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "mockserver: "))
	}
	defer srv.Close()
	m.printSettings(e.out, srv.Addr())
	if err := e.out.flush(); err != nil {
		return err
	}
	<-ctx.Done()
	srv.Close()
	violations := srv.Violations()
	for _, v := range violations {
		fmt.Fprintln(e.stderr, v)
	}
	switch n := len(violations); n {
	case 0:
		return nil
	case 1:
		return errors.New("1 violation, which would have harmed a real server or its client")
	default:
		return fmt.Errorf("%d violations, which would have harmed a real server or its clients", n)
	}
}

func (m *mock) options() []mockserver.Option {
	network, addr := "tcp", m.addr
	if m.unix != "" {
		network, addr = "unix", m.unix
	}
	opts := []mockserver.Option{mockserver.WithAddr(network, addr), mockserver.WithValueSize(m.size)}
	for h, on := range m.hazards {
		opts = append(opts, mockserver.WithHazard(h, on))
	}
	opts = append(opts, mockserver.WithServiceTime(m.service))
	if m.real {
		opts = append(opts, mockserver.WithRealServiceTime())
	}
	if m.made >= 0 {
		opts = append(opts, mockserver.WithSlowCreation(m.made))
	}
	if m.service > 0 || m.real || m.made >= 0 {
		runtime.GOMAXPROCS(1) // a real server has one thread
	}
	return opts
}

// printSettings prints the address in the first line, and the other settings.
func (m *mock) printSettings(out *output, addr string) {
	line := mockJSON{Address: addr, ValueSize: m.size, Hazards: map[string]bool{}, Service: m.service.Seconds(), Real: m.real}
	if m.made >= 0 {
		line.Made = &m.made
	}
	var words []string
	for _, h := range mockserver.Hazards() {
		on, set := m.hazards[h]
		if !set {
			on = h.Default()
		}
		_, name := hazardName(h)
		line.Hazards[name] = on
		words = append(words, name+"="+onOff(on))
	}
	if out.json != nil {
		out.add(line)
		return
	}
	out.table("")
	out.add(nil, addr)
	settings := "values of " + sizeName(m.size) + ", hazards " + strings.Join(words, ",")
	if m.service > 0 {
		settings += ", " + m.service.String() + " for each request"
	}
	if m.made >= 0 {
		settings += fmt.Sprintf(", slow creation after %d records", m.made)
	}
	out.add(nil, settings)
}

// hazardName returns the number of a hazard, such as "H1", and its name on the command line,
// such as "grace".
func hazardName(h mockserver.Hazard) (number, name string) {
	number, name, _ = strings.Cut(h.String(), " ")
	return number, strings.ToLower(name)
}

// hazardList lists all hazards and their defaults for the help.
func hazardList() string {
	var b strings.Builder
	for _, h := range mockserver.Hazards() {
		number, name := hazardName(h)
		fmt.Fprintf(&b, "  %-15s  %s\n", name+"="+onOff(h.Default()), number)
	}
	return b.String()
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// parseHazards returns the hazards of these names, and whether they are on.
func parseHazards(switched map[string]string) (map[mockserver.Hazard]bool, error) {
	known := map[string]mockserver.Hazard{}
	for _, h := range mockserver.Hazards() {
		_, name := hazardName(h)
		known[name] = h
	}
	hazards := map[mockserver.Hazard]bool{}
	for name, setting := range switched {
		h, ok := known[name]
		switch {
		case setting != "on" && setting != "off":
			return nil, fmt.Errorf("--hazard %s=%s is not of the form grace=on or grace=off", name, setting)
		case !ok:
			return nil, fmt.Errorf("there is no hazard %q", name)
		}
		hazards[h] = setting == "on"
	}
	return hazards, nil
}
