package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"rollcall/pkg/sink/starrockstest"
)

// spans are what a worker sent, by id.
type spans struct {
	mu  sync.Mutex
	all map[string]*tracepb.Span
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &data) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, res := range data.ResourceSpans {
		for _, scope := range res.ScopeSpans {
			for _, span := range scope.Spans {
				s.all[string(span.SpanId)] = span
			}
		}
	}
}

// below counts the spans of a name whose parents have the names given, innermost first.
func (s *spans) below(name string, parents ...string) (found []*tracepb.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.all {
		at, ok := span, span.Name == name
		for _, p := range parents {
			at = s.all[string(at.GetParentSpanId())]
			ok = ok && at.GetName() == p
		}
		if ok && len(at.GetParentSpanId()) == 0 {
			found = append(found, span)
		}
	}
	return found
}

func attribute(span *tracepb.Span, key string) any {
	for _, a := range span.Attributes {
		if a.Key == key {
			if s := a.Value.GetStringValue(); s != "" {
				return s
			}
			return a.Value.GetIntValue()
		}
	}
	return nil
}

// With OTEL_* set, the worker sends a span per restore and per load, and in it the seal, the attempts, each hop and each question for a label's
// state.
func TestTraces(t *testing.T) {
	got := &spans{all: map[string]*tracepb.Span{}}
	collector := httptest.NewServer(got)
	t.Cleanup(collector.Close)
	r := newRig(t, fake(t).Addrs(), starrockstest.Config{})
	r.rocks.Inject(starrockstest.Fault{At: starrockstest.AtCommitted, Times: 1, Do: []starrockstest.Action{starrockstest.Reset()}}) // an answer that is lost
	w := r.worker("w", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_BSP_SCHEDULE_DELAY=200")
	require.NoError(t, w.Start())
	require.NoError(t, r.produce(t.Context(), threeDays(77), 5000, 0))
	r.exact(30*time.Second, w)
	r.stop(w, 0)

	restores := got.below("restore")
	require.Len(t, restores, partitions)
	require.Equal(t, topic, attribute(restores[0], "messaging.destination.name"))
	loads := got.below("load")
	require.NotEmpty(t, loads)
	done := 0
	for _, l := range loads {
		if attribute(l, "rollcall.load.outcome") == "done" {
			done++
			require.NotEmpty(t, attribute(l, "rollcall.load.label"))
			require.Positive(t, attribute(l, "rollcall.load.rows"))
		}
	}
	require.Equal(t, len(loads), done)
	require.NotEmpty(t, got.below("seal", "load"))
	require.Len(t, got.below("label state", "attempt", "load"), 1, "of the attempt whose answer was lost")
	require.Len(t, got.below("GET", "label state", "attempt", "load"), 1)
	hops := map[any]int{}
	for _, h := range got.below("PUT", "attempt", "load") {
		hops[attribute(h, "http.response.status_code")]++
	}
	attempts := len(got.below("attempt", "load"))
	require.Equal(t, map[any]int{int64(http.StatusTemporaryRedirect): attempts, int64(http.StatusOK): attempts - 1, nil: 1}, hops, "front end, back end, and the one answer that was lost")
}
