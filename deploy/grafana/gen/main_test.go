package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The committed dashboard is what the generator prints.
func TestDashboardIsUpToDate(t *testing.T) {
	d, err := build()
	require.NoError(t, err)
	want, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	got, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got), "run: go run ./deploy/grafana/gen > deploy/grafana/dashboard.json")
}

// A panel that lacks what a reader needs is refused.
func TestPanelNeedsUnitDescriptionRunbook(t *testing.T) {
	full := panel{title: "t", description: "d", runbook: "r", unit: "s", width: 1}
	_, err := full.build()
	require.NoError(t, err)
	for name, change := range map[string]func(*panel){
		"title": func(p *panel) { p.title = "" }, "description": func(p *panel) { p.description = "" },
		"runbook": func(p *panel) { p.runbook = "" }, "unit": func(p *panel) { p.unit = "" }, "width": func(p *panel) { p.width = 0 },
	} {
		p := full
		change(&p)
		_, err := p.build()
		require.Error(t, err, name)
	}
}

// Panels do not overlap and stay on the grid.
func TestGrid(t *testing.T) {
	d, err := build()
	require.NoError(t, err)
	taken := map[[2]uint32]string{}
	ids := map[uint32]bool{}
	for _, e := range d.Panels {
		if e.Panel == nil {
			continue
		}
		require.False(t, ids[*e.Panel.Id])
		ids[*e.Panel.Id] = true
		g := e.Panel.GridPos
		require.LessOrEqual(t, g.X+g.W, uint32(24), *e.Panel.Title)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				require.Empty(t, taken[[2]uint32{x, y}], *e.Panel.Title)
				taken[[2]uint32{x, y}] = *e.Panel.Title
			}
		}
	}
	require.NotEmpty(t, ids)
}
