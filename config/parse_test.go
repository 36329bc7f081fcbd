package config

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite docs/settings.md")

const settingsDoc = "../docs/settings.md"

func TestSettingsDoc(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteMarkdown(&b))
	if *update {
		require.NoError(t, os.WriteFile(settingsDoc, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(settingsDoc)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "run: go test ./config -run TestSettingsDoc -update")
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "12b": 12, "64MiB": 64 << 20, "64 mib": 64 << 20, "64Mi": 64 << 20, "64M": 64e6, "64MB": 64e6, "2k": 2000, "1GiB": 1 << 30,
		"3T": 3e12, "1TiB": 1 << 40, "9223372036854775807": 1<<63 - 1,
	} {
		got, err := parseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "MiB", "-1", "1.5GiB", "1e3", "0x10", "9223372036854775808", "9007199254740993TiB", "10 M B", "1ibb", "١"} {
		_, err := parseBytes(text)
		require.Error(t, err, text)
	}
	for size, want := range map[Bytes]string{0: "0", 1: "1", 1024: "1KiB", 1536: "1536", 64 << 20: "64MiB", 3 << 50: "3072TiB"} {
		require.Equal(t, want, size.String())
	}
}

func TestTimeFormat(t *testing.T) {
	for text, want := range map[string]string{
		"UNIX_MS": "unix_ms", "unix_s": "unix_s", "unix_us": "unix_us", "RFC3339": "rfc3339",
		"2006-01-02T15:04:05Z07:00": "2006-01-02T15:04:05Z07:00", "02/Jan/2006:15:04:05 -0700": "02/Jan/2006:15:04:05 -0700", "20060102": "20060102",
	} {
		var f TimeFormat
		require.Empty(t, f.set(text), text)
		require.Equal(t, want, string(f))
	}
	for _, text := range []string{"iso", "yyyy-MM-dd", "15:04:05", "unix", "2006", "2006-01", "%Y-%m-%d"} {
		var f TimeFormat
		require.NotEmpty(t, f.set(text), text)
	}
}

func TestMeasureProblems(t *testing.T) {
	for text, want := range map[string]string{
		"count":                            "has no name; write name=count",
		"distinct(user_id)":                "has no name; write name=distinct(field)",
		"=count":                           "has no name; write a name",
		"dt=count":                         "takes the name of the day column",
		"DT=count":                         "takes the name of the day column",
		"rollcall_x=count":                 "keeps for itself; choose a name that does not begin with rollcall_",
		"__op=count":                       "StarRocks keeps for itself",
		"__row_id=count":                   "StarRocks keeps for itself",
		"`uv`=count":                       "has back-ticks in its name",
		"1uv=count":                        "is no identifier",
		"u v=count":                        "is no identifier",
		"ü=count":                          "is no identifier",
		strings.Repeat("a", 65) + "=count": "is no identifier",
		"uv=distict(x)":                    "has an unknown kind; write uv=distinct(field)",
		"uv=":                              "has an unknown kind",
		"uv=count()":                       "gives count a field",
		"uv=distinct":                      "names no field; write uv=distinct(field)",
		"uv=distinct()":                    "names no field",
		"uv=distinct(a,2)":                 "only sum, min and max take decimals",
		"uv=sum(a,x)":                      "decimals that are not one number",
		"uv=sum(a,10)":                     "write 0 to 9",
		"uv=sum(a,-1)":                     "write 0 to 9",
		"uv=sum(a,1,2)":                    "decimals that are not one number",
		"uv=sum(a.)":                       "empty name in its path",
		"uv=sum(a) x":                      "something after the parentheses",
		"uv=sum((a))":                      "something after the parentheses",
		"uv=sum(a":                         "parentheses that do not match",
		"uv=sum)a(":                        "parentheses that do not match",
		",":                                "names no measure",
		strings.Repeat("a=count,", 65):     "65 measures",
	} {
		var m Measures
		found := m.set(text)
		require.Len(t, found, 1, text)
		require.Contains(t, found[0].Found+"; "+found[0].Remedy, want, text)
	}
}

func TestDimensionProblems(t *testing.T) {
	for text, want := range map[string]string{
		"device.os":                      "is a path without a name; write os=device.os",
		"os=":                            "names no field",
		"os=.a":                          "empty name in its path",
		"a b":                            "is no identifier",
		"dt=day":                         "takes the name of the day column",
		"Rollcall_x":                     "keeps for itself",
		"a`; DROP=x":                     "has back-ticks",
		"a=b\x00":                        "control character",
		"a=b" + strings.Repeat(".b", 32): "more than 32 names",
	} {
		var d Dimensions
		found := d.set(text)
		require.Len(t, found, 1, text)
		require.Contains(t, found[0].Found+"; "+found[0].Remedy, want, text)
	}
}

func TestStartOffsets(t *testing.T) {
	var s Start
	require.Empty(t, s.set("offsets: events/0 = 120 ; events/7=0;other.topic/1=9223372036854775806;"))
	require.Equal(t, Start{Mode: ModeOffsets, Offsets: map[string]map[int32]int64{
		"events": {0: 120, 7: 0}, "other.topic": {1: 1<<63 - 2},
	}}, s)
}

func TestWorkerName(t *testing.T) {
	for host, want := range map[string]string{
		"": "rollcall", "pod-1": "pod-1", "a.b.c": "a-b-c", "--": "rollcall", "ü": "rollcall",
		strings.Repeat("x", 80) + "-abc": strings.Repeat("x", 59) + "-abc",
	} {
		require.Equal(t, want, workerName(host))
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"TOPIC", "TOPICS", 1}, {"FIEL", "FILE", 2}} {
		require.Equal(t, c.want, distance(c.a, c.b))
		require.Equal(t, c.want, distance(c.b, c.a))
	}
}
