// Package dashboard_test tests the dashboard throttr.json, and the alerts of the documents.
package dashboard_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// queries returns the queries of the dashboard, and the expressions of the alerts that the documents have.
func queries(t *testing.T) (all []string) {
	text, err := os.ReadFile("throttr.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(text, &board))
	for _, panel := range board.Panels {
		require.NotEmpty(t, panel.Targets)
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	document, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`(?m)^ +expr: (.*\n(?:    [^ ].*\n)*)`).FindAllStringSubmatch(string(document), -1)
	require.GreaterOrEqual(t, len(alerts), 6)
	for _, m := range alerts {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// The names and the labels of queries are those that OpenTelemetry's exporter writes.
func TestQueriesNameWhatIsExported(t *testing.T) {
	written := string(hour(t))
	for _, query := range queries(t) {
		for _, name := range regexp.MustCompile(`throttr_\w+(\{)?`).FindAllString(query, -1) {
			name = strings.TrimSuffix(name, "{")
			require.Regexp(t, `(?m)(^|[{,])`+name+`[ {=]`, written, query)
		}
		for _, label := range regexp.MustCompile(`(\w+)=("\w+(\.\w+)?")`).FindAllString(query, -1) {
			require.Contains(t, written, label, query)
		}
	}
}

// startPrometheus starts Prometheus with the hour in its database, and returns its address: $THROTTR_PROMETHEUS is
// the folder of prometheus and promtool, if they are not in the path.
func startPrometheus(t *testing.T) string {
	program, err := exec.LookPath(filepath.Join(os.Getenv("THROTTR_PROMETHEUS"), "prometheus"))
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	promtool, err := exec.LookPath(filepath.Join(os.Getenv("THROTTR_PROMETHEUS"), "promtool"))
	require.NoError(t, err)
	dir := t.TempDir()
	samples, data := filepath.Join(dir, "samples"), filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(samples, hour(t), 0o644))
	output, err := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", samples, data).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), nil, 0o644))
	free := httptest.NewServer(nil)
	addr := strings.TrimPrefix(free.URL, "http://")
	free.Close()
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+addr)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + addr + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	return addr
}

// Prometheus answers each query of the dashboard, and of the alerts, with values that are numbers.
func TestPrometheusAnswersTheQueries(t *testing.T) {
	addr := startPrometheus(t)
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, query := range queries(t) {
		value := regexp.MustCompile(` [<>] [0-9.]+$`).ReplaceAllString(query, "") // alerts have no value unless they fire
		response, err := http.Get(fmt.Sprintf("http://%s/api/v1/query_range?query=%s&start=%d&end=%d&step=15", addr, url.QueryEscape(value), start, start+3600))
		require.NoError(t, err)
		reply, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", query, reply)
		require.Regexp(t, `\[[0-9]+,"[-0-9]`, string(reply), query)
	}
}
