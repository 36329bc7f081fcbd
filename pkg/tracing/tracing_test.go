package tracing

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		want string // the address, "" for off
		err  string
	}{
		{"nothing", nil, "", ""},
		{"general endpoint", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, "http://c:4318/v1/traces", ""},
		{"general endpoint with a path", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/"}, "https://c/otlp/v1/traces", ""},
		{"endpoint of traces as it stands", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d:1/x"}, "http://d:1/x", ""},
		{"exporter alone", []string{"OTEL_TRACES_EXPORTER", "otlp"}, "http://localhost:4318/v1/traces", ""},
		{"disabled", []string{"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, "", ""},
		{"no exporter", []string{"OTEL_TRACES_EXPORTER", "none", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, "", ""},
		{"another exporter", []string{"OTEL_TRACES_EXPORTER", "zipkin"}, "", "OTEL_TRACES_EXPORTER=zipkin: want otlp or none"},
		{"grpc", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, "", "only http/protobuf is spoken"},
		{"no scheme", []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318"}, "", "OTEL_EXPORTER_OTLP_ENDPOINT=c:4318: want http://host:port"},
		{"headers", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_HEADERS", "nonsense"}, "", "want key=value"},
		{"timeout", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_TIMEOUT", "5s"}, "", "want milliseconds"},
		{"authorities", []string{"OTEL_TRACES_EXPORTER", "otlp", "OTEL_EXPORTER_OTLP_CERTIFICATE", "/does/not/exist"}, "", "OTEL_EXPORTER_OTLP_CERTIFICATE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := read(environment(c.env...))
			switch {
			case c.err != "":
				require.ErrorContains(t, err, c.err)
				logs, seen := observer.New(zap.InfoLevel)
				require.Nil(t, New(environment(c.env...), Service{}, zap.New(logs)).Tracer(), "wrong variables never stop the worker")
				require.Equal(t, 1, seen.FilterMessage("traces are off").Len())
			case c.want == "":
				require.ErrorIs(t, err, errOff)
			default:
				require.NoError(t, err)
				require.Equal(t, c.want, s.url)
			}
		})
	}
	h, err := headers("authorization=Bearer%20x, api-key = y=z ,")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"authorization": "Bearer x", "api-key": "y=z"}, h)
}

// collector answers POSTs with a status and keeps what it got.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []*tracepb.ResourceSpans
	header http.Header
}

func newCollector(t *testing.T) *collector {
	c := &collector{status: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var data tracepb.TracesData
		c.mu.Lock()
		defer c.mu.Unlock()
		if err := proto.Unmarshal(body, &data); err != nil || c.status != http.StatusOK {
			w.WriteHeader(max(c.status, http.StatusBadRequest))
			return
		}
		c.got, c.header = append(c.got, data.ResourceSpans...), r.Header.Clone()
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) set(status int) {
	c.mu.Lock()
	c.status = status
	c.mu.Unlock()
}

func TestSpansReachTheCollector(t *testing.T) {
	c := newCollector(t)
	tr := New(environment("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL, "OTEL_EXPORTER_OTLP_HEADERS", "api-key=k"),
		Service{Version: "v1", Instance: "w-0", Attributes: []attribute.KeyValue{attribute.String("x", "y")}}, zap.NewNop())
	ctx, parent := tr.Tracer().Start(t.Context(), "load")
	_, child := tr.Tracer().Start(ctx, "attempt")
	child.End()
	parent.End()
	tr.Shutdown()

	require.Len(t, c.got, 1)
	require.Equal(t, "k", c.header.Get("Api-Key"))
	require.Equal(t, "application/x-protobuf", c.header.Get("Content-Type"))
	attrs := map[string]string{}
	for _, a := range c.got[0].Resource.Attributes {
		attrs[a.Key] = a.Value.GetStringValue()
	}
	require.Equal(t, "rollcall", attrs["service.name"])
	require.Equal(t, "v1", attrs["service.version"])
	require.Equal(t, "w-0", attrs["service.instance.id"])
	require.Equal(t, "y", attrs["x"])
	spans := c.got[0].ScopeSpans[0].Spans
	require.Len(t, spans, 2)
	require.Equal(t, []string{"attempt", "load"}, []string{spans[0].Name, spans[1].Name})
	require.Equal(t, spans[1].SpanId, spans[0].ParentSpanId)
	require.Equal(t, spans[1].TraceId, spans[0].TraceId)
}

// One line when spans stop getting through and one when they do again.
func TestACollectorThatRefuses(t *testing.T) {
	c := newCollector(t)
	s, err := read(environment("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL))
	require.NoError(t, err)
	p := newPoster(s)
	c.set(http.StatusServiceUnavailable)
	require.ErrorContains(t, p.UploadTraces(t.Context(), nil), "answered HTTP 503")
	c.set(http.StatusOK)
	require.NoError(t, p.UploadTraces(t.Context(), nil))

	logs, seen := observer.New(zap.InfoLevel)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	tr := New(environment("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL), Service{}, zap.New(logs))
	defer tr.Shutdown()
	span := func() {
		_, s := tr.Tracer().Start(context.Background(), "x")
		s.End()
	}
	c.set(http.StatusServiceUnavailable)
	for range 5 {
		span()
		time.Sleep(20 * time.Millisecond)
	}
	require.Eventually(t, func() bool { return seen.FilterMessageSnippet("do not get through").Len() == 1 }, 5*time.Second, 10*time.Millisecond)
	c.set(http.StatusOK)
	require.Eventually(t, func() bool { span(); return seen.FilterMessageSnippet("get through again").Len() == 1 }, 5*time.Second, 20*time.Millisecond)
	require.Equal(t, 1, seen.FilterMessageSnippet("do not get through").Len())
}

// A collector that takes the connection and says nothing holds nobody up: neither who ends spans nor the end of the process.
func TestACollectorThatIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's listener
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	tr := New(environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String()), Service{}, zap.NewNop())
	begun := time.Now()
	for range 10_000 { // more than there is room for
		_, s := tr.Tracer().Start(context.Background(), "x")
		s.End()
	}
	tr.Shutdown()
	require.Less(t, time.Since(begun), 2*shutdownLimit+3*time.Second)
}
