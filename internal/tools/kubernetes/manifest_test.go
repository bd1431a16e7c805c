// Package kubernetes_test checks examples/kubernetes without a cluster.
package kubernetes_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const root = "../../.."

// manifest decodes throttr.yaml. Unknown and repeated fields are errors.
func manifest(t *testing.T) (*service, *statefulSet) {
	t.Helper()
	text, err := os.ReadFile(root + "/examples/kubernetes/throttr.yaml")
	require.NoError(t, err)
	documents := yaml.NewDecoder(bytes.NewReader(text))
	documents.KnownFields(true)
	var s service
	var set statefulSet
	require.NoError(t, documents.Decode(&s))
	require.NoError(t, documents.Decode(&set))
	require.ErrorIs(t, documents.Decode(new(any)), io.EOF)
	require.Equal(t, typed{"v1", "Service"}, s.typed)
	require.Equal(t, typed{"apps/v1", "StatefulSet"}, set.typed)
	return &s, &set
}

// Each server must have a name of its own: behind one name, the windows of a key would be on
// several servers.
func TestEachServerHasAName(t *testing.T) {
	svc, set := manifest(t)
	require.Equal(t, "None", svc.Spec.ClusterIP)
	require.Equal(t, svc.Metadata.Name, set.Spec.ServiceName)
	require.Equal(t, svc.Spec.Selector, set.Spec.Selector.MatchLabels)
	require.Equal(t, svc.Spec.Selector, set.Spec.Template.Metadata.Labels)
}

func TestServerHasOneThreadAndThePortOfTheService(t *testing.T) {
	svc, set := manifest(t)
	require.Len(t, set.Spec.Template.Spec.Containers, 1)
	server := set.Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"throttr", "--port", strconv.Itoa(int(svc.Spec.Ports[0].Port)), "--threads", "0"}, server.Args)
	require.Equal(t, svc.Spec.Ports[0].Port, server.Ports[0].ContainerPort)
}

// probe returns the command of the liveness probe, and the address that it names.
func probe(t *testing.T, set *statefulSet) (command []string, address int) {
	t.Helper()
	command = set.Spec.Template.Spec.Containers[0].LivenessProbe.Exec.Command
	for i, arg := range command {
		if arg == "--servers" {
			return command, i + 1
		}
	}
	t.Fatal("the probe names no server")
	return nil, 0
}

// The init container installs the program that the probe runs.
func TestProbeIsInstalled(t *testing.T) {
	_, set := manifest(t)
	pod := set.Spec.Template.Spec
	install, server := pod.InitContainers[0], pod.Containers[0]
	command, _ := probe(t, set)
	folder := filepath.Dir(command[0])
	require.Contains(t, install.Env, variable{Name: "GOBIN", Value: folder})
	require.Contains(t, install.Env, variable{Name: "CGO_ENABLED", Value: "0"})
	for _, c := range []container{install, server} {
		require.Equal(t, pod.Volumes[0].Name, c.VolumeMounts[0].Name)
		require.Equal(t, folder, c.VolumeMounts[0].MountPath)
	}
	changes, err := os.ReadFile(root + "/CHANGELOG.md")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^## \[(\d[^\]]*)\]`).FindSubmatch(changes)
	require.NotNil(t, version)
	require.Equal(t, []string{"go", "install", "github.com/throttr-go/throttr/cmd/throttr@v" + string(version[1])}, install.Command)
}

// Kubernetes must not end the probe before the probe itself gives up.
func TestProbeEndsInTime(t *testing.T) {
	_, set := manifest(t)
	liveness := set.Spec.Template.Spec.Containers[0].LivenessProbe
	command, _ := probe(t, set)
	require.Equal(t, "--timeout", command[len(command)-2])
	timeout, err := time.ParseDuration(command[len(command)-1])
	require.NoError(t, err)
	require.Greater(t, time.Duration(liveness.TimeoutSeconds)*time.Second, timeout)
}

// The command is run as the manifest has it, with another address: first beside a mock server, and
// then without.
func TestProbeRuns(t *testing.T) {
	_, set := manifest(t)
	command, address := probe(t, set)
	program := filepath.Join(t.TempDir(), "throttr")
	out, err := exec.Command("go", "build", "-C", root+"/cmd/throttr", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	mock := exec.CommandContext(t.Context(), program, "mock", "--addr", "127.0.0.1:0")
	stdout, err := mock.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, mock.Start())
	first, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)

	args := slices.Clone(command[1:])
	args[address-1] = strings.TrimSpace(first)
	out, err = exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, mock.Process.Kill())
	mock.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, exec.Command(program, args...).Run(), &exit)
	require.Equal(t, 2, exit.ExitCode())
}

// docs/servers.md shows the probe as the manifest has it.
func TestDocumentShowsTheProbe(t *testing.T) {
	document, err := os.ReadFile(root + "/docs/servers.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(document), "```yaml\n")
	require.True(t, ok)
	shown, _, _ := strings.Cut(rest, "```")
	text, err := os.ReadFile(root + "/examples/kubernetes/throttr.yaml")
	require.NoError(t, err)
	require.Contains(t, string(text), shown)
}
