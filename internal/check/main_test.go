package main

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	tree.documents = map[string]string{"docs/faulty.md": strings.ReplaceAll(faulty, "@", "") + strings.Repeat("word ", 27_000)}
	tree.files = set{"docs/faulty.md": true} // without other modules, which may need the network
	tree.checkNames()
	tree.checkLinks()
	tree.checkWords()
	require.NoError(t, tree.checkSnippets())
	found := strings.Join(tree.found, "\n")
	for _, want := range []string{
		"docs/faulty.md: leads nowhere: the link nowhere.md", "docs/faulty.md: has no such heading: the link #no-heading",
		"docs/faulty.md: there is no TestOfNo@thing", "docs/faulty.md: there is no file no/such.go", "limiter.Xyzz undefined",
		"undefined: x", "have more than 26000 words",
	} {
		require.Contains(t, found, strings.ReplaceAll(want, "@", ""))
	}
	require.NotContains(t, found, "#a-heading")
	require.NotContains(t, found, "Go 2", "what compiles, with a variable that nothing uses")
}

// Only what programs can call needs a doc comment.
func TestFunctionsThatNeedADocComment(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "", `package p
func A() {}
func (T) B() {}
func (*T) C() {}
func (t *T[V]) D() {}
func (t) E() {}
func (t *t[V]) F() {}`, 0)
	require.NoError(t, err)
	needs := ""
	for _, d := range f.Decls {
		if d := d.(*ast.FuncDecl); exportedReceiver(d) {
			needs += d.Name.Name
		}
	}
	require.Equal(t, "ABCD", needs)
}
