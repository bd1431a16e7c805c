package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/throttr-go/throttr/internal/tools/load"
)

// readyLine is what --turns prints once the row has warmed up.
const readyLine = "ready"

// takeTurns measures a turn of row r for each duration that comes on standard input, and
// prints its report. It is the other side of an otherLoad.
func (b *bench) takeTurns(ctx context.Context, e *env, r *row) error {
	fmt.Fprintln(e.out.w, readyLine)
	if err := e.out.flush(); err != nil {
		return err
	}
	durations := readLines(e.stdin)
	for {
		var line string
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case l, ok := <-durations:
			if !ok {
				return nil
			}
			line = l
		}
		d, err := time.ParseDuration(line)
		if err != nil {
			return err
		}
		if r.results, err = measureOnce(ctx, r, d); err != nil {
			return err
		}
		if err := b.report(e.out, []*row{r}); err != nil {
			return err
		}
		if err := e.out.flush(); err != nil {
			return err
		}
	}
}

// measureOnce measures one turn.
func measureOnce(ctx context.Context, r *row, d time.Duration) ([]load.Result, error) {
	all, err := load.Compare(ctx, d, 1, []load.Contender{r}, nil)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// readLines returns the lines of r. The goroutine that reads them ends with r.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- strings.TrimSpace(s.Text())
		}
	}()
	return lines
}
