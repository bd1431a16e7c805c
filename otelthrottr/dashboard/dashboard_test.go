// Package dashboard_test tests the dashboard throttr.json, and the alerts of the documents.
package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
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
)

// panel is a chart of the dashboard.
type panel struct {
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		Expr         string
		LegendFormat string
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
}

func panels(t *testing.T) []panel {
	text, err := os.ReadFile("throttr.json")
	require.NoError(t, err)
	var board struct{ Panels []panel }
	require.NoError(t, json.Unmarshal(text, &board))
	return board.Panels
}

// queries returns the queries of the dashboard, and the expressions of the alerts that the documents have.
func queries(t *testing.T) (all []string) {
	for _, panel := range panels(t) {
		require.NotEmpty(t, panel.Targets, panel.Title)
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

// series is what a query returns: the values of the hour.
type series struct {
	labels         map[string]string
	minutes, value []float64
}

// ask runs a query over the hour. Values that are no numbers, as of divisions by 0, are left out.
func ask(t *testing.T, addr, query string) (all []series) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	response, err := http.Get(fmt.Sprintf("http://%s/api/v1/query_range?query=%s&start=%d&end=%d&step=15", addr, url.QueryEscape(query), start, start+3600))
	require.NoError(t, err)
	defer response.Body.Close()
	var reply struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&reply))
	require.Empty(t, reply.Error, query)
	for _, result := range reply.Data.Result {
		s := series{labels: result.Metric}
		for _, v := range result.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			require.NoError(t, err)
			if value == value {
				s.minutes = append(s.minutes, (v[0].(float64)-float64(start))/60)
				s.value = append(s.value, value)
			}
		}
		all = append(all, s)
	}
	return all
}

// Prometheus answers each query of the dashboard, and of the alerts, with values.
func TestPrometheusAnswersTheQueries(t *testing.T) {
	addr := startPrometheus(t)
	for _, query := range queries(t) {
		value := regexp.MustCompile(` [<>] [0-9.]+$`).ReplaceAllString(query, "") // alerts have no value unless they fire
		require.True(t, slices.ContainsFunc(ask(t, addr, value), func(s series) bool { return len(s.value) > 0 }), query)
	}
	drawPicture(t, addr)
}
