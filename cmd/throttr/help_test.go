package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestHelpOfEveryCommandHasExamplesThatParse(t *testing.T) {
	t.Parallel()
	for _, c := range commands {
		t.Run(c.name, func(t *testing.T) {
			require.NotEmpty(t, c.examples)
			_, byHelp, stderr := shell{t, ""}.run("", "help", c.name)
			require.Empty(t, stderr)
			for _, args := range [][]string{{c.name, "-h"}, {c.name, "-help"}, {"-json", "help", c.name}} {
				status, out, stderr := shell{t, ""}.run("", args...)
				require.Zero(t, status)
				require.Empty(t, stderr)
				require.Equal(t, byHelp, out)
			}
			require.True(t, strings.HasPrefix(byHelp, "throttr "+c.name+": "))
			require.Contains(t, byHelp, "\nUsage: throttr "+c.name+" [flags]")
			for line := range strings.Lines(byHelp) {
				if !strings.HasPrefix(line, "  throttr ") {
					require.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth+1, line)
				}
				require.Equal(t, strings.TrimRight(line, " \n")+"\n", line)
			}
			for _, e := range c.examples {
				require.Contains(t, byHelp, "\n  "+e+"\n")
				_, e = e[:strings.Index(e, "throttr ")], e[strings.Index(e, "throttr "):]
				name, act, err := parse(&globals{}, strings.Fields(e)[1:])
				require.NoError(t, err, e)
				require.Equal(t, c.name, name)
				require.NotNil(t, act)
			}
		})
	}
}

func TestHelpListsEveryCommand(t *testing.T) {
	t.Parallel()
	_, byHelp, _ := shell{t, ""}.run("", "help")
	for _, args := range [][]string{{"-h"}, {"--help"}} {
		status, out, stderr := shell{t, ""}.run("", args...)
		require.Zero(t, status)
		require.Empty(t, stderr)
		require.Equal(t, byHelp, out)
	}
	for line := range strings.Lines(byHelp) {
		if !strings.HasPrefix(line, "  throttr ") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth+1, line)
		}
	}
	for _, c := range commands {
		require.Contains(t, byHelp, "\n  "+c.name+" ")
		require.Contains(t, byHelp, "\n  "+c.examples[0]+"\n")
	}
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = c.name
	}
	slices.Sort(names)
	require.Len(t, slices.Compact(names), len(commands), "names are unique")
}

func TestMarkdownHelpContainsEveryCommand(t *testing.T) {
	t.Parallel()
	_, all, stderr := shell{t, ""}.run("", "help", "-markdown")
	require.Empty(t, stderr)
	for _, c := range commands {
		_, byHelp, _ := shell{t, ""}.run("", "help", c.name)
		require.Contains(t, all, "\n## "+c.name+"\n\n```\n"+byHelp+"```\n")
		require.Contains(t, all, "\n| [`"+c.name+"`](#"+c.name+") | "+c.short+" | ")
		if c.no != "" {
			require.Contains(t, byHelp, "\nExit status 1: "+c.no+".\n")
		}
	}
	_, overview, _ := shell{t, ""}.run("", "help")
	require.Contains(t, all, "\n```\n"+overview+"```\n")
}
