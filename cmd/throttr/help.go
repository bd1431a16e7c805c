package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
)

// helpError is no error: somebody wants help, with one command or with all.
type helpError struct{ command *command }

// Error implements error; nobody is shown it.
func (e *helpError) Error() string { return "help is wanted" }

// help returns what "throttr help" asks for.
func help(args []string) error {
	if len(args) == 0 {
		return &helpError{}
	}
	if err := needArgs(args, "command"); err != nil {
		return err
	}
	c, ok := find(args[0])
	if !ok {
		return fmt.Errorf("there is no command %q", args[0])
	}
	return &helpError{command: &c}
}

func (e *helpError) print(w io.Writer) error {
	var b bytes.Buffer
	if e.command == nil {
		overview(&b)
	} else {
		e.command.help(&b)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// overview is the help with the program.
func overview(b *bytes.Buffer) {
	b.WriteString("Throttr speaks to Throttr servers, or plays one.\n\nUsage: throttr command [flags] [arguments]\n\nCommands:\n\n")
	width := 0
	for _, c := range commands {
		width = max(width, len(c.name))
	}
	for _, c := range commands {
		fmt.Fprintf(b, "  %-*s  %s\n", width, c.name, c.short)
	}
	fmt.Fprintf(b, "  %-*s  %s\n", width, "help", "tell more about a command")
	b.WriteString("\nFlags of every command, or before its name:\n\n")
	f := newFlags("")
	(&globals{timeout: defaultTimeout}).define(f, wholeCommand+" (subscribe and bench: parts of it, see their help)")
	printFlags(b, f)
	b.WriteString("\nThe servers' value size is found out. Keys with bytes that can't be shown are printed like \"a\\x00b\".\n" +
		"\nExit status: 0; 1 where the answer was no (denied, not found, there already); 2 after an error.\n" +
		"\nExamples:\n\n")
	for _, c := range commands {
		fmt.Fprintf(b, "  %s\n", c.examples[0])
	}
}

// help is the help with one command.
func (c *command) help(b *bytes.Buffer) {
	fmt.Fprintf(b, "throttr %s: %s.\n\nUsage: throttr %s [flags] %s", c.name, c.short, c.name, c.args)
	if c.args == "" {
		b.Truncate(b.Len() - 1)
	}
	fmt.Fprintf(b, "\n\n%s\nFlags:\n\n", c.long)
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

func printFlags(b *bytes.Buffer, f *flag.FlagSet) {
	f.SetOutput(b)
	f.PrintDefaults()
}
