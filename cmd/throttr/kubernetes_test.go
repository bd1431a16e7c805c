package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/throttr-go/throttr/mockserver"
)

const manifest = "../../examples/kubernetes/throttr.yaml"

// at returns what a document has at a path of names and indices.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		if i, ok := step.(int); ok {
			v = v.([]any)[i]
		} else {
			v = v.(map[string]any)[step.(string)]
		}
		require.NotNil(t, v, "%v of %v", step, path)
	}
	return v
}

func TestManifestRunsOneThreadAndAProbeThatWorks(t *testing.T) {
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	documents := yaml.NewDecoder(bytes.NewReader(text))
	var service, set map[string]any
	require.NoError(t, documents.Decode(&service))
	require.NoError(t, documents.Decode(&set))
	require.ErrorIs(t, documents.Decode(new(any)), io.EOF)

	// Each server has a name of its own, and clients reach it by that.
	require.Equal(t, []any{"v1", "Service", "None"}, []any{service["apiVersion"], service["kind"], at(t, service, "spec", "clusterIP")})
	require.Equal(t, []any{"apps/v1", "StatefulSet", at(t, service, "metadata", "name")}, []any{set["apiVersion"], set["kind"], at(t, set, "spec", "serviceName")})
	selector := at(t, service, "spec", "selector")
	require.Equal(t, selector, at(t, set, "spec", "template", "metadata", "labels"))
	require.Equal(t, map[string]any{"matchLabels": selector}, at(t, set, "spec", "selector"))
	pod := at(t, set, "spec", "template", "spec")
	server, install := at(t, pod, "containers", 0), at(t, pod, "initContainers", 0)
	port := at(t, service, "spec", "ports", 0, "port")
	require.Equal(t, []any{"throttr", "--port", fmt.Sprint(port), "--threads", "0"}, at(t, server, "args"))
	require.Equal(t, port, at(t, server, "ports", 0, "containerPort"))

	// The init container installs the probe where both see it, and the probe gives up before Kubernetes ends it.
	probe := strings.Fields(strings.Trim(fmt.Sprint(at(t, server, "livenessProbe", "exec", "command")), "[]"))
	folder := at(t, server, "volumeMounts", 0, "mountPath")
	require.Equal(t, fmt.Sprint(folder, "/throttr"), probe[0])
	require.Equal(t, folder, at(t, install, "volumeMounts", 0, "mountPath"))
	require.Equal(t, map[string]any{"name": "GOBIN", "value": folder}, at(t, install, "env", 0))
	limit, err := time.ParseDuration(probe[slices.Index(probe, "--timeout")+1])
	require.NoError(t, err)
	require.Less(t, limit, time.Duration(at(t, server, "livenessProbe", "timeoutSeconds").(int))*time.Second)

	srv := mockserver.RunT(t)
	probe[slices.Index(probe, "--store")+1] = srv.Addr()
	shell{t: t}.does(strings.Join(probe[1:], " "))
	srv.Close()
	status, _, _ := shell{t: t}.run("", probe[1:]...)
	require.Equal(t, statusError, status)

	document, err := os.ReadFile("../../docs/servers.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(document), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	require.Contains(t, string(text), shown, "docs/servers.md shows the probe")
}
