package main

import (
	"context"
	"flag"
	"runtime"
	"runtime/debug"
)

var versionCommand = command{
	name:  "version",
	short: "tell which version of the program this is",
	long: `The version is that of the module, and followed by those of Go and of the platform that the
program was built for. "(devel)" was built from a directory, without a version.
`,
	examples: []string{"throttr version", "throttr version -json"},
	local:    true,
	define: func(*flag.FlagSet) reader {
		return func(args []string) (task, error) {
			return version, needArgs(args)
		}
	},
}

// versionRecord is the program's version in JSON.
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

// moduleVersion returns the version of the module in a build, which may be nil.
func moduleVersion(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
