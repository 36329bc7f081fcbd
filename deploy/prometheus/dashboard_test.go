package prometheus_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type gpanel struct {
	Title   string
	Type    string
	Links   []struct{ URL string }
	Targets []struct{ Expr, RawSQL string }
	Panels  []gpanel
}

type gdashboard struct {
	Panels     []gpanel
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

func readDashboard(t *testing.T) gdashboard {
	t.Helper()
	b, err := os.ReadFile("../grafana/dashboard.json")
	require.NoError(t, err)
	var d gdashboard
	require.NoError(t, json.Unmarshal(b, &d))
	return d
}

// panels are the dashboard's, also those inside collapsed rows, without the rows.
func panels(t *testing.T) []gpanel {
	t.Helper()
	var out []gpanel
	for _, p := range readDashboard(t).Panels {
		if p.Type == "row" {
			out = append(out, p.Panels...)
		} else {
			out = append(out, p)
		}
	}
	require.Greater(t, len(out), 30)
	return out
}

func variableQuery(t *testing.T, name string) string {
	t.Helper()
	for _, v := range readDashboard(t).Templating.List {
		if q, ok := v.Query.(string); ok && v.Name == name {
			return q
		}
	}
	t.Fatalf("the dashboard has no variable %q with a query", name)
	return ""
}
