package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestOutputShowsPlansAndDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, `anonymous:
  200  "burst";r=0;t=10, "hour";r=1;t=3600
  429  "burst";r=0;t=10, "hour";r=1;t=3600
anonymous, with an invented API key:
  429  "burst";r=0;t=10, "hour";r=1;t=3600
fred, free plan:
  200  "burst";r=2;t=10, "hour";r=3;t=3600
  200  "burst";r=1;t=10, "hour";r=2;t=3600
  200  "burst";r=0;t=10, "hour";r=1;t=3600
  429  "burst";r=0;t=10, "hour";r=1;t=3600
petra, paid plan:
  200  "burst";r=9;t=10, "hour";r=4999;t=3600
  200  "burst";r=8;t=10, "hour";r=4998;t=3600
  200  "burst";r=7;t=10, "hour";r=4997;t=3600
  200  "burst";r=6;t=10, "hour";r=4996;t=3600
monitoring, no limits:
  200  (no limit)
  200  (no limit)
  200  (no limit)
  200  (no limit)
fred, after the upgrade:
  200  "burst";r=6;t=10, "hour";r=4996;t=3600
  200  "burst";r=5;t=10, "hour";r=4995;t=3600
`, out.String())
	})
}
