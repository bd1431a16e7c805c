package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTableOfAnyLengthIsAligned(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o := newOutput(&b, false)
	o.table("key", ">n", "text")
	for range 3 * blockRows {
		o.add(nil, "é", "12345", "x")
	}
	require.NotZero(t, b.Len(), "not all rows are held back")
	o.add(nil, "a", "1", "")
	require.NoError(t, o.flush())
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "key      n  text", lines[0])
	require.Equal(t, "é    12345  x", lines[1])
	require.Equal(t, "é    12345  x", lines[2*blockRows+7])
	require.Equal(t, "a        1", lines[3*blockRows+1])
	require.Len(t, lines, 3*blockRows+3)
}

func TestTextIsQuotedUnlessPlain(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"user:42": "user:42", "straße": "straße", "-": "-",
		"": `""`, "a b": `"a b"`, "a\tb": `"a\tb"`, "\xff": `"\xff"`, `"`: `"\""`, `\x`: `"\\x"`, "\u200b": `"\u200b"`,
	} {
		require.Equal(t, want, quoted(in))
	}
}
