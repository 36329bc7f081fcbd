package prometheus_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"rollcall/pkg/pipeline"
)

const runbookPath = "../../docs/runbook.md"

type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// rules reads rules.yml.
func rules(t *testing.T) []rule {
	t.Helper()
	b, err := os.ReadFile("rules.yml")
	require.NoError(t, err)
	var f struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(b, &f))
	var all []rule
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// tool returns the path of a program of Debian's package prometheus, or skips.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("ROLLCALL_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf("ROLLCALL_REQUIRE_PROMETHEUS=1 and there is no %s: apt-get install prometheus", name)
	}
	t.Skipf("there is no %s here (apt-get install prometheus)", name)
	return ""
}

func TestPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
	}
}

// Every alert is complete, is in the runbook, and has a unit test in which it fires and one in which it does not.
func TestAlertsAreComplete(t *testing.T) {
	anchors := anchors(t)
	tests, err := os.ReadFile("rules_test.yml")
	require.NoError(t, err)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		t.Run(r.Alert, func(t *testing.T) {
			require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"])
			require.NotEmpty(t, r.Annotations["summary"])
			require.NotEmpty(t, r.Annotations["description"])
			page, anchor, found := strings.Cut(r.Annotations["runbook_url"], "#")
			require.True(t, found)
			require.Equal(t, "docs/runbook.md", page)
			require.Equal(t, strings.ToLower(r.Alert), anchor)
			require.True(t, anchors[anchor], "docs/runbook.md has no section %q", anchor)
			line := regexp.MustCompile(`alertname="` + r.Alert + `", alertstate="firing".*exp_samples: (\[\]|\[\{labels)`)
			kinds := map[string]bool{}
			for _, m := range line.FindAllStringSubmatch(string(tests), -1) {
				kinds[m[1]] = true
			}
			require.Len(t, kinds, 2, "rules_test.yml must have it firing and not firing")
		})
	}
}

// The dashboard's links lead somewhere.
func TestPanelsAreInTheRunbook(t *testing.T) {
	anchors := anchors(t)
	seen := 0
	for _, p := range panels(t) {
		for _, l := range p.Links {
			_, anchor, _ := strings.Cut(l.URL, "#")
			require.True(t, anchors[anchor], "panel %q: docs/runbook.md has no section %q", p.Title, anchor)
			seen++
		}
	}
	require.NotZero(t, seen)
}

func TestExitCodesAreInTheRunbook(t *testing.T) {
	b, err := os.ReadFile(runbookPath)
	require.NoError(t, err)
	for _, code := range []int{
		pipeline.ExitOK, pipeline.ExitSettings, pipeline.ExitNotDurable, pipeline.ExitCheckpoint, pipeline.ExitTable,
		pipeline.ExitSource, pipeline.ExitBug,
	} {
		require.Regexp(t, regexp.MustCompile(`(?m)^### Exit `+jsonOf(code)+`\b`), string(b))
	}
}

// The runbook's log lines are the worker's: each quoted in the table is a string of the code, and no warning or error of the code is
// missing from it.
func TestLogLinesAreInTheRunbook(t *testing.T) {
	b, err := os.ReadFile(runbookPath)
	require.NoError(t, err)
	runbook := string(b)
	code := logLines(t)
	require.Greater(t, len(code), 30)
	for line, file := range code {
		require.Contains(t, runbook, "`"+line+"`", "logged in %s and not in docs/runbook.md", file)
	}
	_, section, found := strings.Cut(runbook, "## Log lines")
	require.True(t, found)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1) {
		require.Contains(t, code, m[1], "docs/runbook.md explains a line that nobody logs")
	}
}

// anchors are those of the runbook's headings, as GitHub makes them.
func anchors(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile(runbookPath)
	require.NoError(t, err)
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(b), -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

func jsonOf(v any) string {
	b, _ := json.Marshal(v) // numbers and strings only
	return string(b)
}
