package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/throttr-go/throttr/codec"
	"github.com/throttr-go/throttr/internal/testkit"
	"github.com/throttr-go/throttr/mockserver"
)

func TestCommandsChangeCountersAndValues(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 4, 8} {
		s, srv := shellFor(t, size, mockserver.WithVirtualClock())
		s.prints(0, "jobs inserted\n", "insert --ttl 1h jobs 100")
		s.prints(1, "jobs exists\n", "insert --ttl 1h jobs 100")
		s.prints(0, "jobs updated\n", "update jobs +3")
		s.prints(0, "jobs updated\n", "update jobs -4")
		s.prints(1, "jobs not found, or a buffer, or it would go below zero\n", "update jobs -100")
		var c record
		require.NoError(t, json.Unmarshal([]byte(s.does("query --json jobs")), &c))
		require.EqualValues(t, 99, *c.Quota)
		require.InDelta(t, 3600, *c.TTLSeconds, 60)
		s.prints(1, "key quota ttl\nnobody - not found\n", "query nobody")
		s.prints(1, `{"key":"nobody","found":false}`+"\n", "query --json nobody")
		s.prints(0, "jobs updated\n", "update jobs =0")
		quota, ok := srv.Counter("jobs")
		require.True(t, ok)
		require.Zero(t, quota)
		s.prints(1, "nobody not found, or a buffer\n", "update nobody +1")
		s.prints(0, "greeting set\n", "set --ttl 1h greeting hello")
		s.prints(1, "greeting not found, or a buffer\n", "update greeting +1")
		s.prints(1, "jobs is a counter, or has just expired\n", "set --ttl 1h jobs hello")
		status, _, stderr := s.run("hello, world\n\xff", "set", "--ttl", "1h", "piped", "-")
		require.Zero(t, status, stderr)
		require.Equal(t, "hello, world\n\xff", s.does("get --raw piped"))
		require.Regexp(t, `^\{"key":"piped","found":true,"value":"hello, world\\n\\ufffd","value_base64":"aGVsbG8sIHdvcmxkCv8=","ttl_seconds":3[56][0-9.]+\}\n$`, s.does("get --json piped"))
		status, out, _ := s.run("", "get", "greeting", "nobody")
		require.Equal(t, statusNo, status)
		require.Regexp(t, `^key bytes ttl value\ngreeting 5 \S+ hello\nnobody - - not found\n$`, spaces.ReplaceAllString(out, " "))
		s.prints(1, "", "get --raw nobody")
		s.prints(1, "jobs purged\nnobody not found\n", "purge jobs nobody")
		require.Equal(t, []string{"greeting", "piped"}, srv.Keys())

		s.prints(0, "jobs inserted\n", "insert --ttl 100s jobs 1")
		for _, step := range []struct {
			change string
			left   time.Duration
		}{{"+30s", 130 * time.Second}, {"-1m", 70 * time.Second}, {"=1m30s", 90 * time.Second}} {
			s.prints(0, "jobs updated\n", "update --ttl jobs "+step.change)
			d, ok := srv.TTL("jobs")
			require.True(t, ok)
			require.Equal(t, step.left, d.Round(time.Millisecond))
		}
		s.prints(1, "nobody not found\n", "update --ttl nobody =1m")
	}
}

func TestOutOfRangeErrorNamesValueSizeThatWouldDo(t *testing.T) {
	t.Parallel()
	s1, _ := shellFor(t, 1)
	s1.fails("insert --ttl 1h k 256", "quota 256 is out of range", "at most 255", "2-byte values (uint16) would do")
	s1.fails("update k +70000", "quota 70000", "4-byte values (uint32) would do")
	s1.prints(0, "k inserted\n", "insert --ttl 100s k 1")
	s1.fails("update --ttl k +1500ms", "1.5s", "whole number of s", "k")
	s1.fails("update --ttl k +1h", "TTL 3600 is out of range", "2-byte values (uint16) would do")
	s1.fails("insert --ttl 301s k 1", "TTL out of range", "a value size of 1, one of 2 would do")
	s1.fails("hit --scale 1h1m1s --limit 5 k", "Scale 1h1m1s is out of range")
	s1.fails("set --ttl 1m k "+strings.Repeat("x", 256), "value is 256 bytes, at most 255")
	s8, _ := shellFor(t, 8)
	s8.prints(0, "k inserted\n", "insert --ttl 1h k 18446744073709551615")
	s8.fails("query "+strings.Repeat("k", 256), "key is 256 bytes, at most 255")
}

func TestResultsBeforeErrorArePrinted(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	srv.Inject(mockserver.Fault{Op: codec.OpPurge, Skip: 5, Disconnect: true}) // the probe sends 4
	require.Equal(t, "a not found\n", plainly(s.breaksOff("purge a b", "throttr purge: ")))
}

func TestMessagesArePublishedAndPrinted(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	s.prints(1, "news nobody is subscribed\n", "publish news hello")
	for _, asJSON := range []bool{false, true} {
		out, in := io.Pipe()
		var all sync.WaitGroup
		var status int
		var printed string
		args := []string{"subscribe", "-n", "2", "news", "--store", s.store}
		if asJSON {
			args = append(args, "--json")
		}
		all.Go(func() {
			var b bytes.Buffer
			status = run(t.Context(), args, nil, &b, in)
			in.Close()
			printed = b.String()
		})
		line := make([]byte, 100)
		n, err := out.Read(line)
		require.NoError(t, err)
		require.Equal(t, "subscribed to news\n", string(line[:n]))
		srv.Disconnect() // the gap is no message
		require.Eventually(t, func() bool { return srv.Subscriptions("news") == 1 }, 10*time.Second, time.Millisecond)
		for _, payload := range []string{"hello", "\xff"} {
			status, _, stderr := s.run(payload, "publish", "news", "-")
			require.Zero(t, status, stderr)
		}
		io.Copy(io.Discard, out)
		all.Wait()
		require.Zero(t, status)
		if asJSON {
			require.Regexp(t, `"gap":true\}\n.*"server":"`+s.store+`","channel":"news","payload":"hello","gap":false\}\n.*"payload_base64":"/w=="`, printed)
		} else {
			require.Regexp(t, `^time +server +channel +payload\n.*\(the connection was lost: messages can be missing\)\n20\S+Z  `+s.store+`  news +hello\n20.*"\\xff"\n$`, printed)
		}
	}
}

func TestInfoOfAllServers(t *testing.T) {
	t.Parallel()
	a, b := mockserver.RunT(t), mockserver.RunT(t)
	s := shell{t, a.Addr() + "," + b.Addr()}
	s.does("insert --ttl 1h jobs 1")
	require.Regexp(t, `(?s)^server +`+a.Addr()+`\n.*running since +20\S+Z\nparked +no\nservice time +[0-9.]+ µs\nkeys +\d+.*read bytes +\d+, \d+ a minute.*requests insert +\d+, \d+ a minute.*server +`+b.Addr(), s.does("info"))
	for i, line := range strings.Split(strings.TrimSpace(s.does("info --json")), "\n") {
		var v struct {
			Server   string
			Counters uint64
			Inserts  rate    `json:"requests_insert"`
			Service  float64 `json:"service_time_seconds"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &v))
		require.Equal(t, strings.Split(s.store, ",")[i], v.Server)
		require.Positive(t, v.Inserts.Total)
		require.Less(t, v.Service, 0.1)
	}
	hostile, late := testkit.Encode(t, codec.InfoResponse{Version: "\x1b[2J"}), testkit.Encode(t, codec.InfoResponse{Timestamp: 1 << 40})
	a.Inject(mockserver.Fault{Op: codec.OpInfo, Replace: hostile, Times: 1})
	require.Regexp(t, `\nversion +"\\x1b\[2J"\n`, s.does("info"), "it changes no terminal")
	a.Inject(mockserver.Fault{Op: codec.OpInfo, Replace: late, Times: 1})
	require.Contains(t, s.breaksOff("info --json", "year outside of range"), b.Addr(), "the year 36812 is none of JSON")
	a.HoldAccept(true)
	require.Contains(t, s.breaksOff("info --timeout 1s", "not done after 1s", a.Addr()), b.Addr(), "none waits for a silent one")
	a.HoldAccept(false)
	b.Close()
	require.Contains(t, s.breaksOff("info", b.Addr()), a.Addr())
}

func TestSweepRemovesRecordsOfTheDead(t *testing.T) {
	t.Parallel()
	s, srv := shellFor(t, 2)
	s.prints(0, "key decision count limit remaining ends in\nk allowed 1 1 0 1m\n", "hit --scale 1m --limit 1 k")
	s.prints(0, "server found removed kept foreign\n"+srv.Addr()+" 1 0 0 0\n", "sweep --dry-run")
	s.prints(0, `{"server":"`+srv.Addr()+`","found":1,"removed":0,"kept":0,"foreign":0,"dry_run":false}`+"\n", "sweep --json")
	require.Len(t, testkit.Keys(srv), 1)
}

func TestMockServerRuns(t *testing.T) {
	t.Parallel()
	start := func(line string, errs io.Writer) (addr string, end func() (status int)) {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, strings.Fields(line), nil, in, errs) }()
		text := make([]byte, 1000)
		n, err := out.Read(text)
		require.NoError(t, err)
		return strings.TrimSpace(string(text[:n])), func() int { cancel(); return <-ended }
	}
	addr, end := start("mock --addr 127.0.0.1:0 --size 4 --hazard grace=off,lateexpiry=on", io.Discard)
	shell{t, addr}.prints(0, "k inserted\n", "insert --ttl 1h k 65536")
	require.Zero(t, end())

	var violations bytes.Buffer
	addr, end = start("mock --addr 127.0.0.1:0", &violations)
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer nc.Close()
	nc.Write([]byte{0x20})
	nc.Read(make([]byte, 1)) // until the server has ended the connection
	require.Equal(t, statusError, end())
	require.Regexp(t, `^H6: connection 1: .*\nthrottr mock: violations, .*: 1\n$`, violations.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var printed bytes.Buffer
	require.Zero(t, run(ctx, strings.Fields("mock --json --size 1 --unix "+t.TempDir()+"/s"), nil, &printed, io.Discard))
	require.Regexp(t, `^\{"address":".*/s"\}\n$`, printed.String())
}

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
