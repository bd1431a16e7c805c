package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// commands returns all commands of the program.
func commands() []*cobra.Command { return newRoot(&env{globals: new(globals)}).Commands() }

func TestHelpOfEveryCommandHasExamplesThatParse(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		help := shell{t, ""}.yes("help " + c.Name())
		require.Equal(t, help, shell{t, ""}.yes(c.Name()+" --help"))
		require.True(t, strings.HasPrefix(help, "throttr "+c.Name()+": "+c.Short))
		require.Contains(t, help, "\nUsage:\n  throttr "+c.Name())
		for line := range strings.Lines(help) {
			if !strings.HasPrefix(line, "  throttr ") {
				require.LessOrEqual(t, utf8.RuneCountInString(line), 80+1, line)
			}
		}
		require.NotEmpty(t, c.Example)
		for e := range strings.Lines(c.Example) {
			_, e, _ = strings.Cut(e, "throttr ")
			e, _, _ = strings.Cut(e, " && ")
			root := newRoot(&env{globals: new(globals)})
			named, args, err := root.Find(strings.Fields(e))
			require.NoError(t, err, e)
			require.Equal(t, c.Name(), named.Name())
			require.NoError(t, named.ParseFlags(args), e)
			require.NoError(t, named.ValidateArgs(named.Flags().Args()), e)
			require.NoError(t, named.ValidateRequiredFlags(), e)
		}
	}
	require.Contains(t, shell{t, ""}.yes("help"), "\n  hit  ")
}

func TestShellsComplete(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"hit --sc":           "--scale\t",
		"mock --hazard ":     "grace=on\n",
		"query ":             ":4\n", // no files
		"completion ":        "fish\t",
		"mock --addr x --si": "--size\t",
	} {
		status, out, _ := shell{t, ""}.run("", append([]string{"__complete"}, strings.Split(words, " ")...)...)
		require.Zero(t, status)
		require.Contains(t, out, want, words)
	}
	for _, sh := range []string{"bash", "zsh", "fish"} {
		script := shell{t, ""}.yes("completion " + sh)
		if _, err := exec.LookPath(sh); err != nil {
			continue
		}
		path := filepath.Join(t.TempDir(), "throttr."+sh)
		require.NoError(t, os.WriteFile(path, []byte(script), 0o644))
		out, err := exec.Command(sh, "-n", path).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
