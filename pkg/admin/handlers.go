package admin

import (
	"embed"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

//go:embed page/index.html page/page.css page/page.js
var page embed.FS

// metricsTimeout bounds a scrape. It is longer than that of the probes because
// nothing outside the process is behind it, only many series.
const metricsTimeout = 5 * time.Second

// handler routes. Only GET and HEAD exist.
func (s *Server) handler(gatherer prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.serveLive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.HandleFunc("GET /status", s.serveStatus)
	if gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
			ErrorHandling:  promhttp.ContinueOnError, // half the metrics tell more than none
			Timeout:        metricsTimeout,
			CoalesceGather: true,
		}))
	}
	mux.Handle("GET /{$}", asset("page/index.html", "text/html; charset=utf-8"))
	mux.Handle("GET /page.css", asset("page/page.css", "text/css; charset=utf-8"))
	mux.Handle("GET /page.js", asset("page/page.js", "text/javascript; charset=utf-8"))
	return mux
}

type liveAnswer struct {
	Live  bool        `json:"live"`
	Error string      `json:"error,omitempty"`
	Stale []staleLoop `json:"stale,omitempty"`
}

type staleLoop struct {
	Loop    string  `json:"loop"`
	Seconds float64 `json:"seconds_since_last_turn"`
	Limit   float64 `json:"limit_seconds"`
}

func (s *Server) serveLive(w http.ResponseWriter, r *http.Request) {
	stale, err := s.live.answer(r.Context())
	a := liveAnswer{Live: err == nil && len(stale) == 0}
	if err != nil {
		a.Error = err.Error()
	}
	for _, x := range stale {
		a.Stale = append(a.Stale, staleLoop{Loop: x.Name, Seconds: x.For.Seconds(), Limit: x.Limit.Seconds()})
	}
	writeJSON(w, a.Live, a)
}

type readyAnswer struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`
}

// reasons asks what keeps the worker from being ready; no answer is a reason.
func (s *Server) reasons(r *http.Request) []Reason {
	reasons, err := s.ready.answer(r.Context())
	if err != nil {
		return []Reason{{Check: "worker", Reason: err.Error()}}
	}
	return reasons
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	reasons := s.reasons(r)
	ready := len(reasons) == 0
	writeJSON(w, ready, readyAnswer{Ready: ready, Reasons: append([]Reason{}, reasons...)})
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	// Both are asked at once, so that together they take no longer than one.
	both := make(chan []Reason, 1)
	go func() { both <- s.reasons(r) }()
	status, err := s.status.answer(r.Context())
	reasons := <-both
	if err != nil {
		writeJSON(w, false, map[string]any{"error": err.Error(), "reasons": append([]Reason{}, reasons...)})
		return
	}
	writeJSON(w, true, status.finish(time.Now(), reasons))
}

// writeJSON answers 200 if ok, else 503. A reader that is gone is nobody's
// error.
func writeJSON(w http.ResponseWriter, ok bool, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	code := http.StatusOK
	switch {
	case err != nil:
		data, code = []byte(`{"error":"`+http.StatusText(http.StatusInternalServerError)+`"}`), http.StatusInternalServerError
	case !ok:
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n'))
}

// asset serves one embedded file. The policy lets the page load its own two
// files and ask for /status, and nothing else.
func asset(name, contentType string) http.Handler {
	data, err := page.ReadFile(name)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err != nil {
			http.Error(w, "the file is not in the binary", http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(data)
	})
}
