package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completeInBash returns what bash completes the last word of a command line to.
func completeInBash(t *testing.T, script string, words ...string) []string {
	t.Helper()
	test := script + `
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_throttr
printf '%s\n' "${COMPREPLY[@]}"
`
	out, err := exec.Command("bash", append([]string{"--norc", "-c", test, "bash", "throttr"}, words...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Fields(string(out))
}

func TestBashCompletesCommandsFlagsAndValues(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	script := shell{t, ""}.yes("completion bash")
	complete := func(words ...string) []string { return completeInBash(t, script, words...) }
	require.Equal(t, []string{"subscribe"}, complete("sub"))
	require.Equal(t, []string{"-servers"}, complete("-ser"))
	require.Equal(t, []string{"hit"}, complete("-servers", "h:1", "hi"))
	require.ElementsMatch(t, []string{"-scale", "-servers"}, complete("hit", "-s"))
	require.ElementsMatch(t, []string{"hit"}, complete("bench", "-workload", "h"))
	require.ElementsMatch(t, []string{"grace=on", "grace=off"}, complete("mock", "-hazard", "gr"))
	require.Empty(t, complete("hit", "-scale", ""), "no value is known")
	require.Equal(t, []string{"zsh"}, complete("completion", "z"))
	require.Equal(t, []string{"purge", "publish"}, complete("help", "pu"))
	all := complete("")
	for _, c := range commands {
		require.Contains(t, all, c.name)
	}
}

func TestScriptsAreValid(t *testing.T) {
	t.Parallel()
	for _, sh := range []string{"bash", "zsh", "fish"} {
		script := shell{t, ""}.yes("completion " + sh)
		for _, c := range commands {
			require.Contains(t, script, c.name)
		}
		require.NotContains(t, script, "%!")
		if _, err := exec.LookPath(sh); err != nil {
			continue
		}
		path := filepath.Join(t.TempDir(), "throttr."+sh)
		require.NoError(t, os.WriteFile(path, []byte(script), 0o644))
		out, err := exec.Command(sh, "-n", path).CombinedOutput()
		require.NoError(t, err, string(out))
		require.Empty(t, string(out))
	}
}

func TestFishCompletesCommandsFlagsAndValues(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("fish"); err != nil {
		t.Skip(err)
	}
	script := shell{t, ""}.yes("completion fish")
	for line, want := range map[string][]string{
		"throttr sub":               {"subscribe"},
		"throttr hit -sc":           {"-scale"},
		"throttr bench -workload h": {"hit"},
		"throttr completion z":      {"zsh"},
	} {
		out, err := exec.Command("fish", "--no-config", "-c", script+"\ncomplete -C '"+line+"'").Output()
		require.NoError(t, err)
		var got []string
		for l := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(l), "\t")
			got = append(got, word)
		}
		require.Equal(t, want, got, line)
	}
}

func TestCompletionNeedsAKnownShell(t *testing.T) {
	t.Parallel()
	shell{t, ""}.fails("completion", "no shell given")
	shell{t, ""}.fails("completion tcsh", `no script for "tcsh"`)
}
