package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionPrintsModuleGoAndPlatform(t *testing.T) {
	t.Parallel()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	s := shell{t, ""}
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	s.prints(0, "throttr  "+moduleVersion(info)+"  "+runtime.Version()+"  "+platform+"\n", "version")
	for _, flag := range []string{"-version", "--version"} {
		s.prints(0, "throttr  "+moduleVersion(info)+"  "+runtime.Version()+"  "+platform+"\n", flag)
	}
	s.fails("-version x", `"x" is one argument too many`)
	status, out, stderr := s.run("", "version", "-json")
	require.Zero(t, status, stderr)
	var got map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, map[string]string{
		"version": moduleVersion(info), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
	}, got)
	s.fails("version x", `"x" is one argument too many`)
}

func TestVersionIsThatOfModule(t *testing.T) {
	t.Parallel()
	require.Equal(t, "v1.2.3", moduleVersion(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}))
	require.Equal(t, "(devel)", moduleVersion(&debug.BuildInfo{}))
	require.Equal(t, "(devel)", moduleVersion(nil))
}
