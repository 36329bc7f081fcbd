package starrocks

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startHop begins the span of one HTTP request below that of ctx, nil while that one is not recorded (OpenTelemetry semantic conventions:
// HTTP client spans). The address has no credentials: they go in a header.
func startHop(ctx context.Context, r *http.Request) trace.Span {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return nil
	}
	_, span := parent.TracerProvider().Tracer("rollcall").Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.full", r.URL.String()), attribute.String("server.address", r.URL.Hostname()))
	return span
}

// endHop ends it with its answer.
func endHop(span trace.Span, a *answer, err error) {
	switch {
	case span == nil:
		return
	case err != nil:
		span.SetStatus(codes.Error, "no answer")
		span.RecordError(err)
	default:
		span.SetAttributes(attribute.Int("http.response.status_code", a.status))
		if a.status >= http.StatusBadRequest {
			span.SetStatus(codes.Error, http.StatusText(a.status))
		}
	}
	span.End()
}
