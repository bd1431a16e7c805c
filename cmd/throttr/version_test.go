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
	s.prints(0, "throttr  "+versionOf(info).Version+"  "+runtime.Version()+"  "+platform+"\n", "version")
	s.prints(0, "throttr  "+versionOf(info).Version+"  "+runtime.Version()+"  "+platform+"\n", "--version")
	status, out, stderr := s.run("", "version", "--json")
	require.Zero(t, status, stderr)
	var got map[string]string
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, map[string]string{
		"version": versionOf(info).Version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
	}, got)
	s.fails("version x", `unknown command "x"`)
}

func TestVersionIsThatOfModule(t *testing.T) {
	t.Parallel()
	require.Equal(t, "v1.2.3", versionOf(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}).Version)
	require.Equal(t, "(devel)", versionOf(&debug.BuildInfo{}).Version)
	require.Equal(t, "(devel)", versionOf(nil).Version)
}
