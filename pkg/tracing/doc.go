// Package tracing sends spans by OTLP over HTTP where the standard variables of OpenTelemetry ask for it (OpenTelemetry specification:
// configuration/sdk-environment-variables, protocol/exporter; OTLP specification: OTLP/HTTP). It is off unless an endpoint or the exporter otlp
// is named, and then nothing of it runs. A collector that is away costs its spans and nothing else.
//
// The SDK and the conversion to OTLP are OpenTelemetry's own. Only the POST is ours: the exporter over HTTP links gRPC, which is a third of the
// worker's binary again.
package tracing
