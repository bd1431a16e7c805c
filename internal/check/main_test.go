package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faulty is a document with a fault of each kind. The names that it has without @ are nowhere else.
const faulty = "# A heading\n\n[a](nowhere.md) [b](#no-heading) [c](#a-heading) `TestOfNo@thing` `no/such.go`\n\n" +
	"```go\nlimiter.Xyzz()\n```\n\n```go\nres, err := limiter.Take(ctx, \"k\", throttr.Limit{}, 1)\n```\n\n" +
	"```go\npackage main\n\nfunc main() { println(x) }\n```\n"

func TestFaultsAreFound(t *testing.T) {
	t.Chdir("../..")
	tree, err := readTree(".")
	require.NoError(t, err)
	tree.texts = map[string]string{"docs/faulty.md": strings.ReplaceAll(faulty, "@", "")}
	tree.names = set{"docs/faulty.md": true, "go.mod": true} // without other modules, which may need the network
	tree.checkTexts()
	require.NoError(t, tree.checkSnippets())
	found := strings.Join(slices.Collect(maps.Keys(tree.found)), "\n")
	for _, want := range []string{
		"docs/faulty.md: leads nowhere: the link nowhere.md", "docs/faulty.md: has no such heading: the link #no-heading",
		"docs/faulty.md: there is no TestOfNo@thing", "docs/faulty.md: there is no no/such.go", "limiter.Xyzz undefined",
		"undefined: x",
	} {
		require.Contains(t, found, strings.ReplaceAll(want, "@", ""))
	}
	require.NotContains(t, found, "#a-heading")
	require.NotContains(t, found, "Go 2", "what compiles, with a variable that nothing uses")
}
