package kubernetes_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifest decodes throttr.yaml as a server of Kubernetes does, which rejects unknown and repeated
// fields.
func manifest(t *testing.T) (*corev1.Service, *appsv1.StatefulSet) {
	t.Helper()
	text, err := os.ReadFile("throttr.yaml")
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, appsv1.AddToScheme(scheme))
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		object, _, err := strict.Decode(document, nil, nil)
		require.NoError(t, err)
		objects = append(objects, object)
	}
	require.Len(t, objects, 2)
	return objects[0].(*corev1.Service), objects[1].(*appsv1.StatefulSet)
}

// Each server must have a name of its own: behind one name, the windows of a key would be on
// several servers.
func TestEachServerHasAName(t *testing.T) {
	service, set := manifest(t)
	require.Equal(t, corev1.ClusterIPNone, service.Spec.ClusterIP)
	require.Equal(t, service.Name, set.Spec.ServiceName)
	require.Equal(t, service.Spec.Selector, set.Spec.Selector.MatchLabels)
	require.Equal(t, service.Spec.Selector, set.Spec.Template.Labels)
}

func TestServerHasOneThreadAndThePortOfTheService(t *testing.T) {
	service, set := manifest(t)
	require.Len(t, set.Spec.Template.Spec.Containers, 1)
	server := set.Spec.Template.Spec.Containers[0]
	require.Contains(t, server.Env, corev1.EnvVar{Name: "THREADS", Value: "1"})
	require.Equal(t, service.Spec.Ports[0].Port, server.Ports[0].ContainerPort)
}

// probe returns the command of the liveness probe, and the address that it names.
func probe(t *testing.T, set *appsv1.StatefulSet) (command []string, address int) {
	t.Helper()
	command = set.Spec.Template.Spec.Containers[0].LivenessProbe.Exec.Command
	for i, arg := range command {
		if arg == "-servers" {
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
	require.Contains(t, install.Env, corev1.EnvVar{Name: "GOBIN", Value: folder})
	require.Contains(t, install.Env, corev1.EnvVar{Name: "CGO_ENABLED", Value: "0"})
	for _, c := range []corev1.Container{install, server} {
		require.Equal(t, pod.Volumes[0].Name, c.VolumeMounts[0].Name)
		require.Equal(t, folder, c.VolumeMounts[0].MountPath)
	}
	changes, err := os.ReadFile("../../CHANGELOG.md")
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
	require.Equal(t, "-timeout", command[len(command)-2])
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
	out, err := exec.Command("go", "build", "-C", "../..", "-o", program, "./cmd/throttr").CombinedOutput()
	require.NoError(t, err, string(out))

	mock := exec.CommandContext(t.Context(), program, "mock", "-addr", "127.0.0.1:0")
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

// docs/server.md shows the probe as the manifest has it.
func TestDocumentShowsTheProbe(t *testing.T) {
	document, err := os.ReadFile("../../docs/server.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(document), "```yaml\n")
	require.True(t, ok)
	shown, _, _ := strings.Cut(rest, "```")
	text, err := os.ReadFile("throttr.yaml")
	require.NoError(t, err)
	require.Contains(t, string(text), shown)
}
