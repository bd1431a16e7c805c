package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutputShowsWhatEachAlgorithmAllows(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `The limit is 8 in 8s. A column is half a second: the number of requests that were allowed
in it, or "-" if all were refused.

A bursty caller: a request at 0 s, and then bursts of 9:

                |0s     |4s     |8s     |12s    |16s    |20s      most in any 8s
sent            1              99       9       9       9       
fixed-window    1              78       -       8       -         15
aligned-window  1              78       -       8       -         15
sliding-window  1              7-       4       4       2         11
sliding-log     1              71       -       8       -         8
token-bucket    1              8-       4       4       4         12

A steady caller: a request each half second, which is twice as many as the limit:

                |0s     |4s     |8s     |12s    |16s    |20s      most in any 8s
sent            111111111111111111111111111111111111111111111111
fixed-window    11111111--------11111111--------11111111--------  8
aligned-window  11111111--------11111111--------11111111--------  8
sliding-window  11111111----------1-1-1-1-1-1-1-1--1-1-1--1-1-1-  8
sliding-log     11111111--------11111111--------11111111--------  8
token-bucket    111111111111111-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-  15
`, out.String())
}
