package sink

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Spans of one load: "load" from its seal to its outcome, in it "seal", then "attempt" for each one with the target's own spans below it, and
// "label state" for each question. While traces are off there is no tracer, and nothing of this costs anything.

// span begins a span at a time; without a tracer ctx stays and the span does nothing.
func (f *Flusher) span(ctx context.Context, name string, at time.Time) (context.Context, trace.Span) {
	if f.cfg.Tracer == nil {
		return ctx, trace.SpanFromContext(ctx)
	}
	return f.cfg.Tracer.Start(ctx, name, trace.WithTimestamp(at))
}

// traceSeal adds the seal that came before the load; sealed is its beginning, zero if there was none.
func (f *Flusher) traceSeal(ctx context.Context, sealed, until time.Time) {
	if f.cfg.Tracer == nil || sealed.IsZero() {
		return
	}
	_, span := f.span(ctx, "seal", sealed)
	span.End(trace.WithTimestamp(until))
}

// traceLoad ends a load's span.
func traceLoad(span trace.Span, ld *load, res loadResult) {
	if !span.IsRecording() {
		return
	}
	outcome := "done"
	switch {
	case res.err != nil:
		outcome = "panic"
		span.RecordError(res.err)
	case res.stopped:
		outcome = "stopped"
	case !res.done:
		outcome = "composed anew"
	}
	if outcome != "done" {
		span.SetStatus(codes.Error, outcome)
	}
	span.SetAttributes(
		attribute.String("rollcall.load.label", ld.label), attribute.Int("rollcall.load.rows", ld.body.Rows), attribute.Int("rollcall.load.bytes", len(ld.body.Data)),
		attribute.Int("rollcall.load.sources", len(ld.items)), attribute.Int("rollcall.load.failures", ld.failures), attribute.String("rollcall.load.outcome", outcome),
	)
	span.End()
}

// traceAttempt ends an attempt's span.
func traceAttempt(span trace.Span, label string, rep Reply) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("rollcall.load.label", label), attribute.String("rollcall.attempt.outcome", status(rep)), attribute.Bool("rollcall.attempt.by_label", rep.ByLabel))
	if rep.Outcome != OutcomeDone {
		span.SetStatus(codes.Error, rep.Reason)
		if rep.Err != nil {
			span.RecordError(rep.Err)
		}
	}
	span.End()
}

// traceState ends the span of a question for a label's state.
func traceState(span trace.Span, state LabelState, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("rollcall.label.state", string(state)))
	if err != nil {
		span.SetStatus(codes.Error, "nobody answers")
		span.RecordError(err)
	}
	span.End()
}
