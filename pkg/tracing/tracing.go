package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// shutdownLimit is how long the last spans may take to be sent.
const shutdownLimit = 2 * time.Second

// Service says who the spans are of.
type Service struct {
	// Version and Instance become service.version and service.instance.id; service.name is rollcall, unless OTEL_SERVICE_NAME says otherwise.
	Version, Instance string
	// Attributes are further attributes of the resource.
	Attributes []attribute.KeyValue
}

// Tracing is the way of spans out of the process. The zero value is off. Safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// New reads the environment and starts the exporter, or nothing if nobody asks for traces. What is wrong with the variables is logged and leaves
// traces off: they are never a reason not to count.
func New(env func(string) string, of Service, log *zap.Logger) *Tracing {
	s, err := read(env)
	if errors.Is(err, errOff) {
		return &Tracing{}
	}
	var exporter *otlptrace.Exporter
	if err == nil {
		exporter, err = otlptrace.New(context.Background(), newPoster(s)) // connects to nothing
	}
	if err != nil {
		log.Warn("traces are off", zap.Error(err))
		return &Tracing{}
	}
	log.Info("traces are on", zap.String("endpoint", s.url))
	return &Tracing{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&quiet{SpanExporter: exporter, log: log}), // drops what it has no room for, and never blocks who ends a span
		sdktrace.WithResource(describe(of)),
	)}
}

func describe(of Service) *resource.Resource {
	own := resource.NewSchemaless(append([]attribute.KeyValue{
		attribute.String("service.name", "rollcall"), attribute.String("service.version", of.Version), attribute.String("service.instance.id", of.Instance),
	}, of.Attributes...)...)
	fromEnv, err := resource.New(context.Background(), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil && fromEnv == nil {
		return own
	}
	all, err := resource.Merge(own, fromEnv)
	if err != nil {
		return own
	}
	return all
}

// Tracer is what begins spans; nil while traces are off.
func (t *Tracing) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("rollcall")
}

// Shutdown sends what has ended, for at most two seconds; spans begun later are lost.
func (t *Tracing) Shutdown() {
	if t.provider == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // quiet has logged it
}

// quiet logs when spans stop getting through and when they do again, not each time.
type quiet struct {
	sdktrace.SpanExporter
	log     *zap.Logger
	failing atomic.Bool
}

// ExportSpans never fails: the SDK would hand the error to a logger of the whole process.
func (q *quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if was := q.failing.Swap(err != nil); was != (err != nil) {
		if err != nil {
			q.log.Warn("traces do not get through; these spans are lost", zap.Int("spans", len(spans)), zap.Error(err))
		} else {
			q.log.Info("traces get through again")
		}
	}
	return nil
}

// poster sends spans to a collector (otlptrace.Client).
type poster struct {
	settings
	client *http.Client
}

func newPoster(s settings) *poster {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // net/http's documented type; it knows HTTPS_PROXY
	transport.TLSClientConfig = s.tls
	return &poster{settings: s, client: &http.Client{Transport: transport, Timeout: s.timeout}}
}

// Start does nothing (otlptrace.Client).
func (p *poster) Start(context.Context) error { return nil }

// Stop ends idle connections (otlptrace.Client).
func (p *poster) Stop(context.Context) error {
	p.client.CloseIdleConnections()
	return nil
}

// UploadTraces makes one POST (otlptrace.Client). The request's message has the same fields as TracesData, which needs no gRPC (OTLP:
// ExportTraceServiceRequest). Nothing is sent again: spans are a help, and the next batch is seconds away.
func (p *poster) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "rollcall")
	for k, v := range p.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered HTTP %d: %q", req.URL.Host, resp.StatusCode, text)
	}
	return nil
}
