package main

import (
	"context"
	"flag"
	"runtime"
	"runtime/debug"
)

var versionCommand = command{
	name:  "version",
	short: "print the version of the program, of Go, and the platform",
	long: `The version of the program is that of its module, or "(devel)" if it was built from a directory.
`,
	examples: []string{"throttr version", "throttr version -json"},
	local:    true,
	define: func(*flag.FlagSet) parser {
		return func(args []string) (action, error) {
			return version, needArgs(args)
		}
	},
}

// versionRecord is the JSON of the program's version.
type versionRecord struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func version(_ context.Context, e *env) (bool, error) {
	info, _ := debug.ReadBuildInfo()
	r := versionRecord{moduleVersion(info), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	e.out.table("", "", "", "")
	e.out.add(r, "throttr", r.Version, r.Go, r.OS+"/"+r.Arch)
	return true, nil
}

// moduleVersion returns the version of the program's module. Info may be nil.
func moduleVersion(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
