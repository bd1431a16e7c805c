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
	for i, want := range []uint64{9, math.MaxUint64, 4, 9, math.MaxUint64} {
		if got := window.Total(limits, i); got != want {
			t.Errorf("the total of limit %d is %d, want %d", i, got, want)
		}
	}
}
