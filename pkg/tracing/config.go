package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	defaultEndpoint = "http://localhost:4318"
	defaultTimeout  = 10 * time.Second
	tracesPath      = "/v1/traces"
	protocol        = "http/protobuf"
)

// settings are what the environment asks for.
type settings struct {
	url     string
	headers map[string]string
	timeout time.Duration
	tls     *tls.Config // nil for the system's authorities
}

// errOff says that nobody asks for traces.
var errOff = errors.New("traces are off")

// read reads the variables of the exporter; those of the SDK (service name, resource attributes, sampler, batches, limits) the SDK reads itself.
// Variables for traces alone win over the general ones.
func read(env func(string) string) (settings, error) {
	of := func(name string) string {
		if v := env("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return env("OTEL_EXPORTER_OTLP_" + name)
	}
	exporter, endpoint := env("OTEL_TRACES_EXPORTER"), of("ENDPOINT")
	switch {
	case strings.EqualFold(env("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return settings{}, errOff
	case exporter != "" && exporter != "otlp":
		return settings{}, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: want otlp or none", exporter)
	}
	if p := of("PROTOCOL"); p != "" && p != protocol {
		return settings{}, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: only %s is spoken; name a collector's port for it, mostly 4318", p, protocol)
	}
	s := settings{timeout: defaultTimeout}
	var err error
	if s.url, err = address(env); err != nil {
		return settings{}, err
	}
	if s.headers, err = headers(of("HEADERS")); err != nil {
		return settings{}, err
	}
	if v := of("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 {
			return settings{}, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT=%s: want milliseconds", v)
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	if s.tls, err = authorities(of("CERTIFICATE")); err != nil {
		return settings{}, err
	}
	return s, nil
}

// address is where to POST: the endpoint for traces as it stands, or the general one with the path of traces behind it.
func address(env func(string) string) (string, error) {
	name, path := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""
	v := env(name)
	if v == "" {
		name, path = "OTEL_EXPORTER_OTLP_ENDPOINT", tracesPath
		v = env(name)
	}
	if v == "" {
		v = defaultEndpoint
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%s=%s: want http://host:port or https://host:port", name, v)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	return u.String(), nil
}

// headers reads key=value,key=value with values as in URLs (W3C Baggage).
func headers(v string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: want key=value,key=value") // the value may be a secret
		}
		out[key] = value
	}
	return out, nil
}

func authorities(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: no certificate in %s", file)
	}
	return conf, nil
}
