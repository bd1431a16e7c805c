package main

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/throttr-go/throttr/mockserver"
)

const manifest = "../../examples/kubernetes/throttr.yaml"

// object is a Service or a StatefulSet, with the fields that the manifest uses. Any other field is an error.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Spec       struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]any
		Ports                    []struct {
			Name string
			Port int
		}
		ServiceName         string `yaml:"serviceName"`
		Replicas            int
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		Template            struct {
			Metadata metadata
			Spec     struct {
				InitContainers []container `yaml:"initContainers"`
				Containers     []container
				Volumes        []struct {
					Name     string
					EmptyDir *struct{} `yaml:"emptyDir"`
				}
			}
		}
	}
}

type metadata struct {
	Name   string
	Labels map[string]any
}

type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct{ Name, Value string }
	Ports         []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	LivenessProbe struct {
		Exec             struct{ Command []string }
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	} `yaml:"livenessProbe"`
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

func TestManifestRunsOneThreadAndAProbeThatWorks(t *testing.T) {
	text, err := os.ReadFile(manifest)
	require.NoError(t, err)
	documents := yaml.NewDecoder(bytes.NewReader(text))
	documents.KnownFields(true)
	var service, set object
	require.NoError(t, documents.Decode(&service))
	require.NoError(t, documents.Decode(&set))
	require.ErrorIs(t, documents.Decode(new(any)), io.EOF)

	// Each server has a name of its own, and clients reach it by that.
	require.Equal(t, "v1 Service None", strings.Join([]string{service.APIVersion, service.Kind, service.Spec.ClusterIP}, " "))
	require.Equal(t, "apps/v1 StatefulSet "+service.Metadata.Name, strings.Join([]string{set.APIVersion, set.Kind, set.Spec.ServiceName}, " "))
	require.Equal(t, service.Spec.Selector, set.Spec.Template.Metadata.Labels)
	require.Equal(t, map[string]any{"matchLabels": service.Spec.Selector}, set.Spec.Selector)
	server, install := set.Spec.Template.Spec.Containers[0], set.Spec.Template.Spec.InitContainers[0]
	port := service.Spec.Ports[0].Port
	require.Equal(t, []string{"throttr", "--port", strconv.Itoa(port), "--threads", "0"}, server.Args)
	require.Equal(t, port, server.Ports[0].ContainerPort)

	// The init container installs the probe where both see it, and the probe gives up before Kubernetes ends it.
	probe := server.LivenessProbe.Exec.Command
	require.Equal(t, install.VolumeMounts[0].MountPath+"/throttr", probe[0])
	require.Equal(t, server.VolumeMounts[0].MountPath+"/throttr", probe[0])
	require.Equal(t, "GOBIN="+server.VolumeMounts[0].MountPath, install.Env[0].Name+"="+install.Env[0].Value)
	limit, err := time.ParseDuration(probe[slices.Index(probe, "--timeout")+1])
	require.NoError(t, err)
	require.Less(t, limit, time.Duration(server.LivenessProbe.TimeoutSeconds)*time.Second)

	srv := mockserver.RunT(t)
	probe[slices.Index(probe, "--store")+1] = srv.Addr()
	status, _, stderr := shell{t: t}.run("", probe[1:]...)
	require.Zero(t, status, stderr)
	srv.Close()
	status, _, _ = shell{t: t}.run("", probe[1:]...)
	require.Equal(t, statusError, status)

	document, err := os.ReadFile("../../docs/servers.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(document), "```yaml\n")
	shown, _, _ = strings.Cut(shown, "```")
	require.Contains(t, string(text), shown, "docs/servers.md shows the probe")
}
