package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// otherLoad is load that another program of this command generates, such as an older one. It
// runs "bench --turns", which measures a turn for each line that it reads.
type otherLoad struct {
	path  string
	args  []string
	cmd   *exec.Cmd
	turns io.WriteCloser // its standard input
	lines chan []byte    // of its output; closed at the end
	errs  bytes.Buffer   // its standard error; complete when lines is closed
	ended error          // how it has ended; valid when lines is closed
	last  load.Report
}

// newOtherLoad returns the load of the program at a path that does what b does.
func newOtherLoad(b *bench, servers string, goroutines int) *otherLoad {
	o := &otherLoad{path: b.compare, args: []string{
		"bench", "--turns", "--json", "--servers", servers, "--workload", string(b.workload), "--goroutines", strconv.Itoa(goroutines),
		"--conns", strconv.Itoa(b.conns), "--keys", strconv.Itoa(b.keys), "--warmup", b.warmup.String(),
	}}
	if b.workload == load.Sparse {
		o.args = append(o.args, "--scale", b.scale.String(), "--limit", strconv.FormatUint(b.limit, 10))
	}
	return o
}

// prepare starts the program. It ends by itself once its input is closed.
func (o *otherLoad) prepare(context.Context) error {
	o.cmd = exec.Command(o.path, o.args...)
	o.cmd.Stderr = &o.errs
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if o.turns, err = o.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := o.cmd.Start(); err != nil {
		return err
	}
	o.lines = make(chan []byte)
	go o.read(out)
	return nil
}

// read reads the output of the program up to its end.
func (o *otherLoad) read(out io.Reader) {
	defer close(o.lines)
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		o.lines <- line
	}
	o.ended = o.cmd.Wait()
}

// next returns the next line of output.
func (o *otherLoad) next(ctx context.Context) ([]byte, error) {
	select {
	case line, ok := <-o.lines:
		if !ok {
			text := strings.TrimSpace(o.errs.String())
			return nil, fmt.Errorf("%s has ended: %w", o.path, errors.Join(o.ended, errors.New(text[strings.LastIndexByte(text, '\n')+1:])))
		}
		return line, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// warmUp waits until the program has warmed up.
func (o *otherLoad) warmUp(ctx context.Context, _ time.Duration, _ func(load.Progress)) error {
	line, err := o.next(ctx)
	if err == nil && !bytes.Equal(bytes.TrimSpace(line), []byte(readyLine)) {
		err = fmt.Errorf("%s prints %q, and not that it is ready", o.path, line)
	}
	return err
}

// Measure implements load.Contender.
func (o *otherLoad) Measure(ctx context.Context, cfg load.Config) (load.Result, error) {
	if _, err := fmt.Fprintln(o.turns, cfg.Duration); err != nil {
		return load.Result{}, err
	}
	line, err := o.next(ctx)
	if err != nil {
		return load.Result{}, err
	}
	if err := json.Unmarshal(line, &o.last); err != nil {
		return load.Result{}, fmt.Errorf("%s: %w", o.path, err)
	}
	return o.last.Result, nil
}

func (o *otherLoad) conns() int { return o.last.Conns }

// cleanUp lets the program clean up and end.
func (o *otherLoad) cleanUp(ctx context.Context) error {
	if o.turns == nil || o.lines == nil {
		return nil
	}
	o.turns.Close()
	for {
		select {
		case _, ok := <-o.lines:
			if !ok {
				return nil // next has returned its error
			}
		case <-ctx.Done():
			o.cmd.Process.Kill()
			return fmt.Errorf("%s does not end: %w", o.path, context.Cause(ctx))
		}
	}
}
