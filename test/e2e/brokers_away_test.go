package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/kafkatest"
	"rollcall/pkg/sink/starrockstest"
	"rollcall/pkg/workerproc"
)

// All brokers are away, first so that connections are refused, then so that nothing answers. The worker stays up, says that it is not ready
// and why, dials no broker more than once a second, takes next to no CPU, and reads again soon after they are back.
func TestAllBrokersAway(t *testing.T) {
	var cells []cell
	for _, mode := range goneModes {
		cells = append(cells, cell{mode.String(), func(t *testing.T) { allAway(t, mode, size(t, 3*time.Minute, 15*time.Second)) }})
	}
	sideBySide(t, cells)
}

func allAway(t *testing.T, mode kafkatest.Mode, d time.Duration) {
	const brokers = 3
	f := fake(t) // so many
	r := newRig(t, f.Addrs(), starrockstest.Config{})
	r.behind(f) // its connections are not those that are counted
	p := r.worker("w")
	require.NoError(t, p.Start())
	r.ready(p)
	b := r.birth(p)
	s := r.stream(71, 600)
	r.eventuallyRead(p, 1000, 20*time.Second)
	rounds := func() float64 {
		m, err := p.Metrics(t.Context())
		require.NoError(t, err)
		return m.Sum("rollcall_discovery_rounds_total")
	}
	connects := func() float64 {
		m, err := p.Metrics(t.Context())
		require.NoError(t, err)
		return m.Sum("rollcall_kafka_connect_errors_total")
	}
	accepted := func() (n int) {
		for i := range int32(brokers) {
			n += f.Proxy(i).Accepted()
		}
		return n
	}

	require.NoError(t, f.Set(mode, 0, 1, 2))
	begun, cpu := time.Now(), cpuTime(t, p.PID())
	// The first tries follow each other within seconds and then less and less often; it is the rest of the outage that is long.
	const first = 5 * time.Second
	var counting time.Time
	var rounds0, connects0 float64
	var accepted0 int
	syns := map[string]bool{}
	var unready time.Duration
	var reason string
	for time.Since(begun) < d {
		if counting.IsZero() && time.Since(begun) >= first {
			counting, rounds0, connects0, accepted0 = time.Now(), rounds(), connects(), accepted()
			clear(syns)
			pending(t, f.Addrs(), syns)
		}
		for range 10 {
			pending(t, f.Addrs(), syns)
			time.Sleep(50 * time.Millisecond)
		}
		require.NoError(t, p.Alive())
		code, _, err := p.Get(t.Context(), "/livez")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code)
		code, body, err := p.Get(t.Context(), "/readyz")
		require.NoError(t, err)
		if code != http.StatusOK && unready == 0 {
			unready = time.Since(begun)
		}
		if unready != 0 {
			require.Equal(t, http.StatusServiceUnavailable, code, "not ready until brokers are back")
			reason = string(body)
		}
	}
	away := time.Since(begun)
	load := (cpuTime(t, p.PID()) - cpu).Seconds() / away.Seconds()
	var dials float64
	switch mode {
	case kafkatest.Refuse: // nobody is there to count: what the client counts, and one try of each broker in every discovery round
		dials = connects() - connects0 + (rounds()-rounds0)*brokers
	case kafkatest.Drop:
		dials = float64(len(syns))
	default:
		dials = float64(accepted() - accepted0)
	}
	perBroker := dials / brokers / time.Since(counting).Seconds()
	require.NotZero(t, unready, "the worker never said that it is not ready")
	require.Regexp(t, `"check":"(discovery|kafka)"`, strings.ReplaceAll(reason, `": "`, `":"`))
	require.Regexp(t, `refused|timeout|deadline|no broker answers`, reason)
	checkAwayMetrics(t, p)

	require.NoError(t, f.Set(kafkatest.Pass, 0, 1, 2))
	back := time.Now()
	m, err := p.Metrics(t.Context())
	require.NoError(t, err)
	r.eventuallyRead(p, m.Sum("rollcall_source_records_total")+1, time.Minute)
	again := time.Since(back)
	s.end(30 * time.Second)
	r.exact(30*time.Second, p)
	r.same(p, b)
	r.ready(p)
	t.Logf("all brokers %s for %.0f s: not ready after %.1f s, %.2f dials per second and broker, %.2f %% CPU, reading again %.2f s after the return; %s",
		mode, away.Seconds(), unready.Seconds(), perBroker, 100*load, again.Seconds(), strings.TrimSpace(reason))
	require.LessOrEqual(t, perBroker, 1.0, "dials per second and broker")
	require.Less(t, load, 0.05, "share of a CPU")
	require.LessOrEqual(t, again, backWithin)
	r.stop(p, 0)
	r.behind(f)
	require.Equal(t, ends(f), r.committed())
}

// checkAwayMetrics: what dashboards show of an outage.
func checkAwayMetrics(t *testing.T, p *workerproc.Process) {
	t.Helper()
	m, err := p.Metrics(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1.0, m.Sum("rollcall_discovery_breaker_state"), "in one state")
	require.Zero(t, m.Sum("rollcall_discovery_breaker_state", "state", "closed"))
	last := time.Unix(int64(m.Sum("rollcall_discovery_last_success_timestamp_seconds")), 0)
	require.Greater(t, time.Since(last), 5*time.Second)
	require.Greater(t, m.Sum("rollcall_freshness_seconds"), 5.0)
	require.Equal(t, float64(partitions), m.Sum("rollcall_discovery_partitions", "state", "known"), "nothing is believed gone")
	require.Zero(t, m.Sum("rollcall_discovery_partitions", "state", "gone"))
}

// cpuTime is the CPU time a process took, on Linux.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip("needs /proc")
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 everywhere
}

// pending adds the connections to the addresses that wait for an answer to their SYN: one each until the client gives it up, far longer than
// between two looks.
func pending(t *testing.T, addrs []string, seen map[string]bool) {
	t.Helper()
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Skip("needs /proc")
	}
	ports := map[string]bool{}
	for _, a := range addrs {
		_, port, err := net.SplitHostPort(a)
		require.NoError(t, err)
		n, err := strconv.ParseUint(port, 10, 16)
		require.NoError(t, err)
		ports[strings.ToUpper(hex.EncodeToString([]byte{byte(n >> 8), byte(n)}))] = true
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // sl local_address rem_address st …
		if len(f) > 3 && f[3] == "02" && ports[f[2][strings.IndexByte(f[2], ':')+1:]] {
			seen[f[1]+f[2]] = true
		}
	}
}
