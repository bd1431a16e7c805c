package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/throttr-go/throttr/mockserver"
)

// mockServer is the command mock.
func mockServer(e *env, f *flags) action {
	addr := f.String("addr", "127.0.0.1:9000", "`host:port` to listen on; port 0: a free one")
	unix := f.String("unix", "", "`path` of a unix socket to listen on instead")
	size := 2
	number(f, &size, "size", 1, 8, "the value size: 1, 2, 4 or 8 `bytes` (default 2)")
	var service time.Duration
	f.duration(&service, "service-time", "the `time` that each request takes, one after the other")
	real := f.Bool("real-service-time", false, "take as long as a real server")
	var opts []mockserver.Option
	f.Func("hazard", "a `list` of hazards to switch, such as grace=off,lateexpiry=on", func(list string) (err error) {
		opts, err = switchHazards(opts, list)
		return err
	})
	return func(ctx context.Context, _ []string) (bool, error) {
		opts = append(opts, mockserver.WithAddr("tcp", *addr), mockserver.WithValueSize(size),
			mockserver.WithServiceTime(service))
		if *unix != "" && f.isSet("addr") {
			return false, errors.New("--addr and --unix can't be used together")
		}
		if *unix != "" {
			opts = append(opts, mockserver.WithAddr("unix", *unix))
		}
		if *real {
			opts = append(opts, mockserver.WithRealServiceTime())
		}
		if *real || service > 0 {
			runtime.GOMAXPROCS(1) // a real server has one thread
		}
		return true, e.serve(ctx, opts)
	}
}

// switchHazards appends the options that switch the hazards of a list.
func switchHazards(opts []mockserver.Option, list string) ([]mockserver.Option, error) {
	known := map[string]mockserver.Hazard{}
	for _, h := range mockserver.Hazards() {
		_, name, _ := strings.Cut(h.String(), " ")
		known[strings.ToLower(name)] = h
	}
	for text := range strings.SplitSeq(list, ",") {
		name, setting, _ := strings.Cut(text, "=")
		h, ok := known[name]
		switch {
		case setting != "on" && setting != "off":
			return nil, fmt.Errorf("%s is not of the form grace=on or grace=off", text)
		case !ok:
			return nil, fmt.Errorf("there is no hazard %q", name)
		}
		opts = append(opts, mockserver.WithHazard(h, setting == "on"))
	}
	return opts, nil
}

// serve runs a mock server until ctx ends.
func (e *env) serve(ctx context.Context, opts []mockserver.Option) error {
	srv, err := mockserver.Start(opts...)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "mockserver: "))
	}
	e.out.add(map[string]string{"address": srv.Addr()}, srv.Addr())
	err = e.out.flush()
	if err == nil {
		<-ctx.Done()
	}
	srv.Close()
	violations := srv.Violations()
	for _, v := range violations {
		fmt.Fprintln(e.stderr, v)
	}
	if len(violations) > 0 {
		return fmt.Errorf("violations, which would have harmed a real server or its clients: %d", len(violations))
	}
	return err
}
