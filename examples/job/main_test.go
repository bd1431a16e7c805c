package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWorkersStayWithinTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		sent := regexp.MustCompile(`(?m)^ *([0-9.]+)s +mail .* of (\w+) +sent$`).FindAllStringSubmatch(out.String(), -1)
		at, of := map[string]int{}, map[string]int{}
		for _, m := range sent {
			at[m[1]]++
			of[m[2]]++
		}
		require.Equal(t, map[string]int{"0.0": 5, "2.0": 5}, at, out.String())
		require.Equal(t, map[string]int{"acme": 6, "smith": 4}, of, out.String())
		require.Equal(t, 4, strings.Count(out.String(), "postponed for 1m0s"))
		require.Contains(t, out.String(), "10 sent, 4 postponed, in 2.0 s\n")
	})
}

func TestInterruptEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var out bytes.Buffer
		require.ErrorIs(t, run(ctx, &out), context.Canceled)
		require.Contains(t, out.String(), "5 sent, 0 postponed, in 1.0 s\n")
	})
}
