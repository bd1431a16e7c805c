package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of the program, of Go, and the platform",
		Long: `The version of the program is that of its module, or "(devel)" if it was built
from a directory.`,
		Example: `  throttr version
  throttr version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			v := versionOf(info)
			e.out.table("")
			e.out.add(v, v.String())
			return nil
		},
	}
}

// versionJSON is the JSON of the program's version.
type versionJSON struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// versionOf returns the version that info tells. Info may be nil.
func versionOf(info *debug.BuildInfo) versionJSON {
	v := versionJSON{"(devel)", runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if info != nil && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	return v
}

// String returns the version as one line.
func (v versionJSON) String() string {
	return fmt.Sprintf("throttr  %s  %s  %s/%s", v.Version, v.Go, v.OS, v.Arch)
}
