package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// best is the greatest value of the runs.
func best[T any](runs []T, of func(T) float64) float64 { return slices.Max(values(runs, of)) }

// least is the smallest value of the runs.
func least[T any](runs []T, of func(T) float64) float64 { return slices.Min(values(runs, of)) }

// median is the middle value of the runs, of an even number the mean of the two in the middle.
func median[T any](runs []T, of func(T) float64) float64 { return middle(values(runs, of)) }

// middle is the median of v, which it sorts.
func middle(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func values[T any](runs []T, of func(T) float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = of(r)
	}
	return out
}

func rss(r run) float64    { return r.rssMiB }
func others(r run) float64 { return r.share.others }

// machine is where the figures come from.
type machine struct {
	cpu, goVersion, load string
	cores                int
	at                   time.Time
}

func describeMachine() machine {
	m := machine{cpu: runtime.GOARCH, goVersion: runtime.Version(), load: "unknown", cores: runtime.NumCPU(), at: time.Now()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := bytes.Cut(b, []byte("model name")); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			m.cpu = strings.Trim(string(line), "\t :")
		}
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.load, _, _ = strings.Cut(string(b), " ")
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("%d × %s, %s, load average %s at the start, %s", m.cores, m.cpu, m.goVersion, m.load, m.at.UTC().Format(time.DateOnly))
}

// report is everything that was measured.
type report struct {
	flags    flags
	machine  machine
	speeds   []speedResult
	memories []memoryResult
	starts   *startResult // nil if not measured
}

func (r report) print(out io.Writer) {
	if r.flags.markdown {
		r.page(out)
		return
	}
	fmt.Fprintf(out, "\n%s\n", r.machine)
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range r.speedRows() {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush()
	for _, s := range r.speeds {
		fmt.Fprintf(out, "%s: the worker reaches %.2f of the raw consumer (median of %d pairs; CPU per event ×%.1f); its table is right in every run.\n",
			s.compression, s.ratio(), len(s.raw), least(s.worker, run.micros)/least(s.raw, run.micros))
	}
	if len(r.memories) > 0 {
		fmt.Fprintln(out)
		for _, row := range r.memoryRows() {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		_ = tw.Flush()
	}
	if r.starts != nil {
		fmt.Fprintln(out)
		for _, row := range r.startRows() {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		_ = tw.Flush()
	}
}

func (r report) speedRows() [][]string {
	if len(r.speeds) == 0 {
		return nil
	}
	rows := [][]string{{"topic", "who", "events/s best", "median", "MB/s best", "µs CPU/event best", "median", "peak RSS MiB", "cores of others", "ratio"}}
	for _, s := range r.speeds {
		for _, side := range []struct {
			name, ratio string
			runs        []run
		}{{"raw", "", s.raw}, {"worker", fmt.Sprintf("%.2f", s.ratio()), s.worker}} {
			rows = append(rows, []string{
				s.compression, side.name,
				thousands(best(side.runs, run.rate)), thousands(median(side.runs, run.rate)), fmt.Sprintf("%.0f", best(side.runs, run.megabytes)),
				fmt.Sprintf("%.2f", least(side.runs, run.micros)), fmt.Sprintf("%.2f", median(side.runs, run.micros)),
				fmt.Sprintf("%.0f", best(side.runs, rss)), fmt.Sprintf("%.1f", median(side.runs, others)*float64(r.machine.cores)), side.ratio,
			})
		}
	}
	return rows
}

func (r report) memoryRows() [][]string {
	rows := [][]string{{"topic", "users × keys", "measure", "peak RSS MiB", "events/s", "µs CPU/event"}}
	for _, m := range r.memories {
		name := "distinct"
		if m.kind == memoryHashes {
			name = "distinct_hash"
		}
		rows = append(rows, []string{
			m.compression, fmt.Sprintf("%s × 100", thousands(float64(m.users))), name, fmt.Sprintf("%.0f", m.run.rssMiB), thousands(m.run.rate()), fmt.Sprintf("%.2f", m.run.micros()),
		})
	}
	return rows
}

func (r report) startRows() [][]string {
	s := r.starts
	seconds := func(of func(start) float64) []string {
		return []string{fmt.Sprintf("%.2f s", least(s.starts, of)), fmt.Sprintf("%.2f s", median(s.starts, of))}
	}
	return [][]string{
		{"what", "best", "median"},
		append([]string{"exec to first record counted"}, seconds(firstOf)...),
		append([]string{"exec to a record of every partition counted"}, seconds(allOf)...),
		{"peak RSS of a start", fmt.Sprintf("%.0f MiB", least(s.starts, peakOf)), fmt.Sprintf("%.0f MiB", median(s.starts, peakOf))},
		{"cores of others meanwhile", fmt.Sprintf("%.1f", least(s.starts, otherOf)*float64(r.machine.cores)), fmt.Sprintf("%.1f", median(s.starts, otherOf)*float64(r.machine.cores))},
		{"RSS idle, keys restored", fmt.Sprintf("%.0f MiB", s.idleMiB), ""},
		{"RSS idle, nothing counted yet", fmt.Sprintf("%.0f MiB", s.emptyMiB), ""},
	}
}

// thousands writes a number with its digits in groups.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// markdown writes rows as a table.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}
