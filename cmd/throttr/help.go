package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// helpError asks for help instead of an action.
type helpError struct{ print func(io.Writer) error }

// Error implements error. It is never printed.
func (e *helpError) Error() string { return "help" }

// helpFor returns a helpError that prints what write writes.
func helpFor(write func(*bytes.Buffer)) *helpError {
	return &helpError{func(w io.Writer) error {
		var b bytes.Buffer
		write(&b)
		_, err := w.Write(b.Bytes())
		return err
	}}
}

// help returns the helpError of "throttr help" with these arguments.
func help(args []string) error {
	if len(args) == 0 {
		return helpFor(overview)
	}
	if err := needArgs(args, "command"); err != nil {
		return err
	}
	if args[0] == "-markdown" {
		return helpFor(markdown)
	}
	c, ok := find(args[0])
	if !ok {
		return fmt.Errorf("there is no command %q", args[0])
	}
	return helpFor(c.help)
}

// overview is the help of the program.
func overview(b *bytes.Buffer) {
	b.WriteString("Throttr is a client of Throttr servers, and a mock server.\n\nUsage: throttr command [flags] [arguments]\n\nCommands:\n\n")
	width := 0
	for _, c := range commands {
		width = max(width, len(c.name))
	}
	for _, c := range commands {
		fmt.Fprintf(b, "  %-*s  %s\n", width, c.name, c.short)
	}
	fmt.Fprintf(b, "  %-*s  %s\n", width, "help", "print the help of a command, or of all as Markdown: -markdown")
	b.WriteString("\nFlags of every command, also before its name:\n\n")
	f := newFlags("")
	(&globals{timeout: defaultTimeout}).define(f, timeoutUsage+" (subscribe and bench: a part of it, see their help)")
	printFlags(b, f)
	b.WriteByte('\n')
	reflow(b, "The value size of the servers is detected. Keys that are not printable are printed like \"a\\x00b\".\n"+
		"\nExit status: 0; 1 if the outcome is negative (denied, not found, exists already); 2 after an error.\n")
	b.WriteString("\nExamples:\n\n")
	for _, c := range commands {
		fmt.Fprintf(b, "  %s\n", c.examples[0])
	}
}

// help is the help of a command.
func (c command) help(b *bytes.Buffer) {
	fmt.Fprintf(b, "throttr %s: %s.\n\nUsage: throttr %s [flags]", c.name, c.short, c.name)
	if c.args != "" {
		b.WriteString(" " + c.args)
	}
	b.WriteString("\n\n")
	if c.long != "" {
		reflow(b, c.long)
		b.WriteByte('\n')
	}
	if c.no != "" {
		wrap(b, "Exit status 1: "+c.no+".", "")
		b.WriteByte('\n')
	}
	b.WriteString("Flags:\n\n")
	f, _ := c.flags(&globals{timeout: defaultTimeout})
	printFlags(b, f)
	noun := "Example"
	if len(c.examples) > 1 {
		noun = "Examples"
	}
	fmt.Fprintf(b, "\n%s:\n\n", noun)
	for _, e := range c.examples {
		fmt.Fprintf(b, "  %s\n", e)
	}
}

// helpWidth is the length of the longest line of help, examples aside.
const helpWidth = 80

// printFlags prints the flags and their defaults.
func printFlags(b *bytes.Buffer, f *flag.FlagSet) {
	f.VisitAll(func(d *flag.Flag) {
		if d.Usage == "" {
			return
		}
		argument, usage := flag.UnquoteUsage(d)
		if argument != "" {
			argument = " " + argument
		}
		if d.DefValue != "" && d.DefValue != "0" && d.DefValue != "0s" && d.DefValue != "false" {
			usage += fmt.Sprintf(" (default %s)", d.DefValue)
		}
		fmt.Fprintf(b, "  -%s%s\n", d.Name, argument)
		wrap(b, usage, "        ")
	})
}

// reflow prints paragraphs in lines of at most helpWidth. Lines that begin with a space stay as
// they are.
func reflow(b *bytes.Buffer, text string) {
	var paragraph []string
	end := func() {
		if paragraph != nil {
			wrap(b, strings.Join(paragraph, " "), "")
			paragraph = nil
		}
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		b.WriteString(line + "\n")
	}
	end()
}

// wrap prints text in lines of at most helpWidth, each after an indent.
func wrap(b *bytes.Buffer, text, indent string) {
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > helpWidth {
			b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}

// markdown is the help of all commands as a Markdown document.
func markdown(b *bytes.Buffer) {
	b.WriteString("# Command reference\n\n" +
		"This is the output of `throttr help -markdown`; `go generate ./cmd/throttr` writes it. [command.md](command.md) explains\n" +
		"the command and shows it in use.\n\n" +
		"| command | purpose | exit status 1 |\n|---|---|---|\n")
	for _, c := range commands {
		fmt.Fprintf(b, "| [`%s`](#%s) | %s | %s |\n", c.name, c.name, c.short, cmp.Or(c.no, "-"))
	}
	b.WriteString("\n## help\n\n```\n")
	overview(b)
	b.WriteString("```\n")
	for _, c := range commands {
		fmt.Fprintf(b, "\n## %s\n\n```\n", c.name)
		c.help(b)
		b.WriteString("```\n")
	}
}
