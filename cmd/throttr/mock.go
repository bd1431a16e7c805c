package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/throttr-go/throttr/mockserver"
)

// mock is the settings of a mock server.
type mock struct {
	flags      *flags
	addr, unix string
	size       uint64
	service    time.Duration
	real       bool                       // requests take as long as on a real server
	made       uint64                     // records, for the time that another one takes, if the flag is set
	switched   map[mockserver.Hazard]bool // on or off
}

// mockSettings is the JSON of a mock server.
type mockSettings struct {
	Address   string          `json:"address"`
	ValueSize uint64          `json:"value_size"`
	Hazards   map[string]bool `json:"hazards"`
}

func mockServer(e *env, f *flags, _ string) action {
	m := &mock{flags: f, size: 2, switched: map[mockserver.Hazard]bool{}}
	f.StringVar(&m.addr, "addr", "127.0.0.1:9000", "`host:port` to listen on; port 0: a free one")
	f.StringVar(&m.unix, "unix", "", "`path` of a unix socket to listen on instead")
	f.number(&m.size, "size", 1, 8, "the value size: 1, 2, 4 or 8 `bytes`")
	f.duration(&m.service, "service-time", 0, "the `time` that each request takes, one after the other")
	f.BoolVar(&m.real, "real-service-time", false, "take as long as a real server")
	f.number(&m.made, "slow-creation", 0, math.MaxInt32, "make INSERT and SET as slow as if the server had made a `number` of records (H7)")
	f.Func("hazard", "a `list` of hazards to switch, such as grace=off,lateexpiry=on", m.parseHazards)
	return func(ctx context.Context, _ []string) (bool, error) { return true, m.serve(ctx, e) }
}

// hazards returns all hazards by their names on the command line, such as "grace".
func hazards() map[string]mockserver.Hazard {
	all := map[string]mockserver.Hazard{}
	for _, h := range mockserver.Hazards() {
		_, name, _ := strings.Cut(h.String(), " ")
		all[strings.ToLower(name)] = h
	}
	return all
}

// parseHazards sets hazards.
func (m *mock) parseHazards(list string) error {
	known := hazards()
	for text := range strings.SplitSeq(list, ",") {
		name, setting, _ := strings.Cut(text, "=")
		h, ok := known[name]
		switch {
		case setting != "on" && setting != "off":
			return fmt.Errorf("%s is not of the form grace=on or grace=off", text)
		case !ok:
			return fmt.Errorf("there is no hazard %q", name)
		}
		m.switched[h] = setting == "on"
	}
	return nil
}

// serve runs the server until ctx ends.
func (m *mock) serve(ctx context.Context, e *env) error {
	if m.unix != "" && m.flags.isSet("addr") {
		return errors.New("--addr and --unix can't be used together")
	}
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
	if len(violations) > 0 {
		return fmt.Errorf("violations, which would have harmed a real server or its clients: %d", len(violations))
	}
	return nil
}

func (m *mock) options() []mockserver.Option {
	network, addr := "tcp", m.addr
	if m.unix != "" {
		network, addr = "unix", m.unix
	}
	opts := []mockserver.Option{
		mockserver.WithAddr(network, addr), mockserver.WithValueSize(int(m.size)), mockserver.WithServiceTime(m.service),
	}
	for h, on := range m.switched {
		opts = append(opts, mockserver.WithHazard(h, on))
	}
	if m.real {
		opts = append(opts, mockserver.WithRealServiceTime())
	}
	if m.flags.isSet("slow-creation") {
		opts = append(opts, mockserver.WithSlowCreation(int(m.made)))
	}
	if m.flags.isSet("service-time", "real-service-time", "slow-creation") {
		runtime.GOMAXPROCS(1) // a real server has one thread
	}
	return opts
}

// printSettings prints the address in the first line, and the other settings.
func (m *mock) printSettings(out *output, addr string) {
	line := mockSettings{addr, m.size, map[string]bool{}}
	var words []string
	for name, h := range hazards() {
		on, set := m.switched[h]
		if !set {
			on = h.Default()
		}
		line.Hazards[name] = on
		words = append(words, name+"="+word(on, "on", "off"))
	}
	slices.Sort(words)
	if out.json == nil {
		out.text(addr + "\n")
	}
	out.add(line, "values of "+sizeName(int(m.size))+", hazards "+strings.Join(words, ","))
}
