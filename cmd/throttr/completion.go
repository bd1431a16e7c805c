package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/throttr-go/throttr/internal/load"
	"github.com/throttr-go/throttr/mockserver"
)

// init adds the command, which refers to the list of commands.
func init() {
	completion := command{
		name: "completion", args: "bash|zsh|fish", local: true,
		short: "print a script that completes command lines in a shell",
		long: `Put the script where the shell loads it, such as here, and start a new shell:

  bash  /etc/bash_completion.d/throttr
  zsh   _throttr in a directory of $fpath
  fish  ~/.config/fish/completions/throttr.fish
`,
		examples: []string{"throttr completion bash", "throttr completion zsh", "throttr completion fish"},
		define: func(*flag.FlagSet) parser {
			return func(args []string) (action, error) {
				if err := needArgs(args, "shell"); err != nil {
					return nil, err
				}
				script, ok := completions[args[0]]
				if !ok {
					return nil, fmt.Errorf("there is no script for %q, but for bash, zsh and fish", args[0])
				}
				return func(_ context.Context, e *env) (bool, error) {
					var b bytes.Buffer
					script(&b, completed())
					_, err := e.out.w.Write(b.Bytes())
					return true, err
				}, nil
			}
		},
	}
	commands = slices.Insert(commands, len(commands)-1, completion)
}

// completions write the scripts.
var completions = map[string]func(*bytes.Buffer, []completedCommand){
	"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion,
}

// completedCommand is what scripts know about a command.
type completedCommand struct {
	name, short string
	flags       []completedFlag
}

// completedFlag is what scripts know about a flag.
type completedFlag struct {
	name, usage string
	argument    bool     // it has one
	values      []string // of the argument, as far as they are known
}

// completed returns all commands.
func completed() (all []completedCommand) {
	for _, c := range commands {
		f, _ := c.flags(&globals{timeout: defaultTimeout})
		one := completedCommand{name: c.name, short: c.short}
		f.VisitAll(func(d *flag.Flag) {
			argument, usage := flag.UnquoteUsage(d)
			usage, _, _ = strings.Cut(usage, ";")
			one.flags = append(one.flags, completedFlag{d.Name, usage, argument != "", flagValues(c.name, d.Name)})
		})
		all = append(all, one)
	}
	return append(all, completedCommand{"help", "print the help of a command", nil})
}

// flagValues returns the values of a flag, if they are known.
func flagValues(command, name string) (values []string) {
	switch command + " " + name {
	case "bench workload":
		return append(workloadNames(), string(load.Sparse), string(raw))
	case "bench frames":
		return workloadNames()
	case "bench compare":
		return []string{string(raw)}
	case "mock size":
		return []string{"1", "2", "4", "8"}
	case "mock hazard":
		for _, h := range mockserver.Hazards() {
			_, hazard := hazardName(h)
			values = append(values, hazard+"=on", hazard+"=off")
		}
	}
	return values
}

func workloadNames() (names []string) {
	for _, w := range load.Workloads {
		names = append(names, string(w))
	}
	return names
}

// argumentValues returns the values of a command's first argument, if they are known.
func argumentValues(command string, all []completedCommand) (values []string) {
	switch command {
	case "completion":
		return []string{"bash", "zsh", "fish"}
	case "help":
		for _, c := range all {
			values = append(values, c.name)
		}
	}
	return values
}

// bashCompletion writes the script for bash. Other words are completed as files.
func bashCompletion(b *bytes.Buffer, all []completedCommand) {
	b.WriteString(`# bash completion of throttr

_throttr() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' words='' i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-servers | -timeout) ((i++)) ;;
		-*) ;;
		*)
			command=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case "$command $prev" in
`)
	for _, c := range all {
		for _, f := range c.flags {
			switch {
			case f.values != nil:
				fmt.Fprintf(b, "	'%s -%s') words='%s' ;;\n", c.name, f.name, strings.Join(f.values, " "))
			case f.argument:
				fmt.Fprintf(b, "	'%s -%s') return ;;\n", c.name, f.name)
			}
		}
	}
	b.WriteString(`	' -servers' | ' -timeout') return ;;
	*)
		case $command in
`)
	var names []string
	for _, c := range all {
		names = append(names, c.name)
		var words []string
		for _, f := range c.flags {
			words = append(words, "-"+f.name)
		}
		fmt.Fprintf(b, "		%s) words='%s' ;;\n", c.name, strings.Join(append(words, argumentValues(c.name, all)...), " "))
	}
	fmt.Fprintf(b, `		'') words='%s -servers -timeout -json -version' ;;
		esac
		;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _throttr throttr
`, strings.Join(names, " "))
}

// zshCompletion writes the script for zsh.
func zshCompletion(b *bytes.Buffer, all []completedCommand) {
	b.WriteString(`#compdef throttr
# zsh completion of throttr

_throttr() {
	local -a commands
	commands=(
`)
	for _, c := range all {
		fmt.Fprintf(b, "		%s\n", singleQuoted(c.name+":"+c.short))
	}
	b.WriteString(`	)
	local context state line
	local -a globals
	globals=('-servers[addresses of the servers]:addresses' '-timeout[the time that the command may take]:time' '-json[print JSON]')
	_arguments -C $globals '-version[print the version]' '1:command:->command' '*::argument:->argument'
	case $state in
	command) _describe command commands ;;
	argument)
		case $words[1] in
`)
	for _, c := range all {
		fmt.Fprintf(b, "		%s)\n			_arguments", c.name)
		for _, f := range c.flags {
			spec := fmt.Sprintf("-%s[%s]", f.name, zshText(f.usage))
			if f.argument {
				spec += ":" + f.name + ":"
				if f.values != nil {
					spec += "(" + strings.Join(f.values, " ") + ")"
				}
			}
			b.WriteString(" \\\n				" + singleQuoted(spec))
		}
		if values := argumentValues(c.name, all); values != nil {
			b.WriteString(" \\\n				" + singleQuoted("1:"+c.name+":("+strings.Join(values, " ")+")"))
		}
		b.WriteString("\n			;;\n")
	}
	b.WriteString(`		esac
		;;
	esac
}

if [ "$funcstack[1]" = _throttr ]; then
	_throttr "$@"
else
	compdef _throttr throttr
fi
`)
}

// fishCompletion writes the script for fish.
func fishCompletion(b *bytes.Buffer, all []completedCommand) {
	b.WriteString("# fish completion of throttr\n\n")
	for _, f := range []struct{ name, usage, more string }{
		{"servers", "addresses of the servers", " -x"}, {"timeout", "the time that the command may take", " -x"},
		{"json", "print JSON", ""}, {"version", "print the version", ""},
	} {
		fmt.Fprintf(b, "complete -c throttr -n __fish_use_subcommand -o %s%s -d %s\n", f.name, f.more, singleQuoted(f.usage))
	}
	for _, c := range all {
		fmt.Fprintf(b, "complete -c throttr -f -n __fish_use_subcommand -a %s -d %s\n", c.name, singleQuoted(c.short))
	}
	for _, c := range all {
		when := singleQuoted("__fish_seen_subcommand_from " + c.name)
		for _, f := range c.flags {
			more := ""
			if f.argument {
				more = " -r"
			}
			if f.values != nil {
				more = " -x -a " + singleQuoted(strings.Join(f.values, " "))
			}
			fmt.Fprintf(b, "complete -c throttr -n %s -o %s%s -d %s\n", when, f.name, more, singleQuoted(f.usage))
		}
		if values := argumentValues(c.name, all); values != nil {
			fmt.Fprintf(b, "complete -c throttr -f -n %s -a %s\n", when, singleQuoted(strings.Join(values, " ")))
		}
	}
}

// singleQuoted quotes text for a shell.
func singleQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// zshText escapes the text of an option for _arguments.
func zshText(text string) string {
	return strings.NewReplacer("[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}
