// Package dashboard_test tests the dashboard throttr.json, and the alerts of the documents.
package dashboard_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/throttr-go/throttr"
	"github.com/throttr-go/throttr/inflight"
	"github.com/throttr-go/throttr/memory"
	"github.com/throttr-go/throttr/otelthrottr"
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
	written := exported(t)
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

// exported returns what the exporter writes after events of each kind.
func exported(t *testing.T) string {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	provider := otelthrottr.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	observe, err := otelthrottr.New(provider)
	require.NoError(t, err)
	observeInFlight, err := otelthrottr.InFlight(provider)
	require.NoError(t, err)
	places := inflight.New(memory.New())
	defer places.Close()
	_, err = otelthrottr.ObserveInFlight(places, provider)
	require.NoError(t, err)

	for kind := throttr.EventAllowed; kind <= throttr.EventWouldDeny; kind++ {
		for _, call := range []string{"take", "wait"} {
			e := throttr.Event{Kind: kind, Call: call, Limit: throttr.Limit{Name: "login"}, Duration: time.Second}
			e.Result = throttr.Result{Count: 4, Limit: 5}
			observe(t.Context(), e)
			e.Result.Degraded = true
			e.Err = throttr.ErrUnavailable
			observe(t.Context(), e)
		}
	}
	for kind := inflight.Acquired; kind <= inflight.Available; kind++ {
		observeInFlight(t.Context(), inflight.Event{Kind: kind, Limit: inflight.Limit{Name: "exports", Max: 4}, InUse: 3})
	}

	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeOpenMetrics))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		require.NoError(t, encoder.Encode(family))
	}
	return text.String()
}
