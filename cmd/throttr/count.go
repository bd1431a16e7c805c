package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
)

// count is a flag like that of [flag.Uint64]. Its error names the bounds.
type count uint64

// countVar defines a flag that sets n. Its default is value.
func countVar(f *flag.FlagSet, n *uint64, name string, value uint64, usage string) {
	*n = value
	f.Var((*count)(n), name, usage)
}

// String implements flag.Value.
func (n *count) String() string { return fmt.Sprint(uint64(*n)) }

// Set implements flag.Value.
func (n *count) Set(text string) error {
	v, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("it is more than %d", uint64(math.MaxUint64))
	case err != nil:
		return errors.New("it must be a whole number of 0 or more")
	}
	*n = count(v)
	return nil
}
