package window_test

import (
	"math"
	"testing"
	"time"

	"github.com/throttr-go/throttr/window"
)

func TestTotalIsTheSumOfTheTakesOfOneWindow(t *testing.T) {
	limits := []window.Limit{
		{Key: "a", Scale: time.Second, N: 1}, {Key: "b", Scale: time.Second, N: 2}, {Key: "a", Scale: time.Minute, N: 4},
		{Key: "a", Scale: time.Second, N: 8}, {Key: "b", Scale: time.Second, N: math.MaxUint64},
	}
	type total struct {
		n  uint64
		ok bool
	}
	for i, want := range []total{{9, true}, {math.MaxUint64, false}, {4, true}, {9, true}, {math.MaxUint64, false}} {
		if n, ok := window.Total(limits, i); n != want.n || ok != want.ok {
			t.Errorf("the total of limit %d is %d, %v, want %v", i, n, ok, want)
		}
	}
	if n, ok := window.Total(limits[4:], 0); n != math.MaxUint64 || !ok {
		t.Errorf("the total of the largest take is %d, %v", n, ok)
	}
}
