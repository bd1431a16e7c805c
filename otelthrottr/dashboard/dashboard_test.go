// Package dashboard_test tests the dashboard throttr.json, and the alerts of the documents.
package dashboard_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

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
