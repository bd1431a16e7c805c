package throttr_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The use that README.md shows is the one that Example runs.
func TestTheUseInTheReadmeCompilesAndRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "\n```go\n")
	require.True(t, ok, "README.md shows a use")
	shown, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)

	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, rest, ok = strings.Cut(string(example), "func use(ctx context.Context, servers []string) error {\n")
	require.True(t, ok)
	body, _, ok := strings.Cut(rest, "\treturn nil\n}\n")
	require.True(t, ok)
	var run strings.Builder
	for line := range strings.Lines(body) {
		run.WriteString(strings.TrimPrefix(line, "\t"))
	}
	require.Equal(t, run.String(), shown)
}
