// Package dashboard_test tests the dashboard throttr.json, and the alerts of the documents.
package dashboard_test

import (
	"context"
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
	"github.com/throttr-go/throttr/window"
)

// away is a store that is away.
type away struct{ window.Backend }

func (away) Take(context.Context, string, window.Limit, uint64) (window.Window, error) {
	return window.Window{}, throttr.ErrUnavailable
}

// serve serves the metrics of limiters in use, until the end of the test.
func serve(t *testing.T) *httptest.Server {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	provider := otelthrottr.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	observer, err := otelthrottr.New(provider)
	require.NoError(t, err)
	inFlight, err := otelthrottr.InFlight(provider)
	require.NoError(t, err)

	store := memory.New()
	places := inflight.New(store, inflight.WithObserver(inFlight))
	_, err = otelthrottr.ObserveInFlight(places, provider)
	require.NoError(t, err)
	limiter := throttr.NewRateLimit(store, throttr.WithObserver(observer))
	failing := throttr.NewRateLimit(away{store}, throttr.WithObserver(observer), throttr.WithLogger(nil))
	degraded := throttr.NewRateLimit(away{store}, throttr.WithObserver(observer), throttr.WithLogger(nil), throttr.WithPolicy(throttr.AllowHits))
	limit := throttr.Limit{Name: "api", Max: 10, Scale: 100 * time.Millisecond}
	exports := inflight.Limit{Name: "exports", Max: 1}
	use := func() {
		ctx := t.Context()
		for range 20 {
			limiter.Take(ctx, "k", limit, 1)
		}
		limiter.Wait(ctx, "w", limit, 1)
		failing.Take(ctx, "k", limit, 1)
		degraded.Take(ctx, "k", limit, 1)
		hold, ok, _ := places.TryAcquire(ctx, "k", exports, 1)
		places.TryAcquire(ctx, "k", exports, 1)
		if ok {
			hold.Release()
		}
	}
	use()
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		use()
		metrics.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		places.Close()
		store.Close()
	})
	return srv
}

// queries returns the queries of the dashboard, and the expressions of the alerts that the documents have.
func queries(t *testing.T) (all []string) {
	text, err := os.ReadFile("throttr.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	for _, panel := range board.Panels {
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
	response, err := http.Get(serve(t).URL)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	written := string(body)
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

// Prometheus answers each query of the dashboard with a value: $THROTTR_PROMETHEUS, or prometheus.
func TestPrometheusAnswersTheQueries(t *testing.T) {
	program := os.Getenv("THROTTR_PROMETHEUS")
	if program == "" {
		program = "prometheus"
	}
	program, err := exec.LookPath(program)
	if err != nil {
		t.Skip("prometheus is not installed")
	}
	dir := t.TempDir()
	target := strings.TrimPrefix(serve(t).URL, "http://")
	config := fmt.Sprintf("global: {scrape_interval: 500ms}\nscrape_configs:\n- job_name: limits\n  metrics_path: /\n  static_configs: [{targets: [%q]}]\n", target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	free := httptest.NewServer(nil)
	addr := strings.TrimPrefix(free.URL, "http://")
	free.Close()
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for _, query := range queries(t) {
		value := regexp.MustCompile(` [<>] [0-9.]+$`).ReplaceAllString(query, "") // alerts have no value unless they fire
		var last string
		answered := func() bool {
			response, err := http.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(value))
			if err != nil {
				return false
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			last = string(body)
			return strings.Contains(last, `"value":[`) && !strings.Contains(last, `"NaN"`)
		}
		for deadline := time.Now().Add(time.Minute); !answered(); time.Sleep(100 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "%s: %s", query, last)
		}
	}
}
