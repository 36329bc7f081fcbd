package main

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// kind is how a panel shows its queries.
type kind int

const (
	graph  kind = iota // over time
	number             // the last value, big
	list               // a table of the last values
)

// panel is one panel, in our words.
type panel struct {
	kind        kind
	title       string
	description string
	runbook     string // the anchor of its section in docs/runbook.md
	unit        string // Grafana's name of a unit
	width       uint32 // of 24
	queries     []query
	sql         string      // instead of queries: for the MySQL data source
	steps       []threshold // colours of a number; none: neutral
	stack       bool
}

// query is PromQL and the legend of its series. The words METRICS and TOPICS in it stand for the selectors of the variables.
type query struct{ expr, legend string }

// threshold is a colour from a value on.
type threshold struct {
	from  float64
	color string
}

// Selectors of the variables. Labels namespace and group may be missing, "All" matches that too.
const (
	metrics = `namespace=~"$namespace", job=~"$job", group=~"$group"`
	topics  = metrics + `, topic=~"$topic"`
)

func expand(expr string) string {
	return strings.NewReplacer("METRICS", metrics, "TOPICS", topics).Replace(expr)
}

func prometheusRef() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func mysqlRef() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("mysql"), Uid: cog.ToPtr("${starrocks}")}
}

// targets are the queries of a panel for its data source.
func (p panel) targets() []cog.Builder[variants.Dataquery] {
	if p.sql != "" {
		return []cog.Builder[variants.Dataquery]{sqlQuery{Format: "table", RawSQL: p.sql, RawQuery: true, EditorMode: "code", RefID: "A"}}
	}
	var out []cog.Builder[variants.Dataquery]
	for i, q := range p.queries {
		b := prometheus.NewDataqueryBuilder().Expr(expand(q.expr)).LegendFormat(q.legend).RefId(string(rune('A' + i)))
		switch p.kind {
		case graph:
			b = b.Range()
		case number:
			b = b.Instant()
		case list:
			b = b.Instant().Format(prometheus.PromQueryFormatTable)
		}
		out = append(out, b)
	}
	return out
}

func (p panel) datasource() common.DataSourceRef {
	if p.sql != "" {
		return mysqlRef()
	}
	return prometheusRef()
}

// links lead to the runbook; the variable runbook says where it is.
func (p panel) links() []cog.Builder[dashboard.DashboardLink] {
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("Runbook").Type(dashboard.DashboardLinkTypeLink).Url("${runbook}#" + p.runbook).TargetBlank(true),
	}
}

func (p panel) thresholds() cog.Builder[dashboard.ThresholdsConfig] {
	steps := []dashboard.Threshold{{Color: "green"}}
	if len(p.steps) == 0 {
		steps[0].Color = "text"
	}
	for _, s := range p.steps {
		steps = append(steps, dashboard.Threshold{Value: cog.ToPtr(s.from), Color: s.color})
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// build makes the SDK's panel.
func (p panel) build() (cog.Builder[dashboard.Panel], error) {
	if p.title == "" || p.description == "" || p.runbook == "" || p.unit == "" || p.width == 0 {
		return nil, fmt.Errorf("panel %q lacks something", p.title)
	}
	last := common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})
	switch p.kind {
	case number:
		return stat.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(p.datasource()).Targets(p.targets()).Links(p.links()).
			Unit(p.unit).Span(p.width).Height(5).Thresholds(p.thresholds()).ReduceOptions(last).ColorMode(common.BigValueColorModeBackground).
			GraphMode(common.BigValueGraphModeNone), nil
	case list:
		return table.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(p.datasource()).Targets(p.targets()).Links(p.links()).
			Unit(p.unit).Span(p.width).Height(8), nil
	case graph:
		b := timeseries.NewPanelBuilder().Title(p.title).Description(p.description).Datasource(p.datasource()).Targets(p.targets()).Links(p.links()).
			Unit(p.unit).Span(p.width).Height(8).Min(0).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti)).
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true))
		if p.stack {
			b = b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
		}
		return b, nil
	}
	return nil, fmt.Errorf("panel %q has no kind", p.title)
}

// sqlQuery is a query of Grafana's MySQL data source, for which the SDK has no type.
type sqlQuery struct {
	Format     string `json:"format"`
	RawSQL     string `json:"rawSql"`
	RawQuery   bool   `json:"rawQuery"`
	EditorMode string `json:"editorMode"`
	RefID      string `json:"refId"`
}

// Build implements the SDK's builder.
func (q sqlQuery) Build() (variants.Dataquery, error) { return q, nil }

// ImplementsDataqueryVariant marks it as a query.
func (q sqlQuery) ImplementsDataqueryVariant() {}

// Equals implements the SDK's query.
func (q sqlQuery) Equals(other variants.Dataquery) bool { return reflect.DeepEqual(q, other) }

// DataqueryType implements the SDK's query.
func (q sqlQuery) DataqueryType() string { return "mysql" }

// Validate implements the SDK's query.
func (q sqlQuery) Validate() error { return nil }
