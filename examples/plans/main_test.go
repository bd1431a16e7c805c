package main

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestTheExampleShowsEachPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no time passes
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		require.Equal(t, `nobody:
  200  "burst";r=0;t=10, "hour";r=1;t=3600
  429  "burst";r=0;t=10
nobody, with a key that was invented:
  429  "burst";r=0;t=10
fred, free:
  200  "burst";r=2;t=10, "hour";r=3;t=3600
  200  "burst";r=1;t=10, "hour";r=2;t=3600
  200  "burst";r=0;t=10, "hour";r=1;t=3600
  429  "burst";r=0;t=10
petra, paid:
  200  "burst";r=9;t=10, "hour";r=4999;t=3600
  200  "burst";r=8;t=10, "hour";r=4998;t=3600
  200  "burst";r=7;t=10, "hour";r=4997;t=3600
  200  "burst";r=6;t=10, "hour";r=4996;t=3600
monitoring, without a limit:
  200  (no limit)
  200  (no limit)
  200  (no limit)
  200  (no limit)
fred, who has upgraded:
  200  "burst";r=5;t=10, "hour";r=4996;t=3600
  200  "burst";r=4;t=10, "hour";r=4995;t=3600
`, out.String())
	})
}
