package deadletter

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// headers as a map; a key that is there twice has its values joined by "|".
func headers(r *kgo.Record) map[string]string {
	out := map[string]string{}
	for _, h := range r.Headers {
		if old, ok := out[h.Key]; ok {
			out[h.Key] = old + "|" + string(h.Value)
			continue
		}
		out[h.Key] = string(h.Value)
	}
	return out
}

func TestCopyKeepsTheRecordAndSaysWhereItIsFrom(t *testing.T) {
	p := &Publisher{cfg: Config{Topic: "dead"}}
	at := time.Date(2026, 3, 10, 13, 0, 0, 123e6, time.FixedZone("x", 3600))
	in := &kgo.Record{
		Topic: "events", Partition: 7, Offset: 1 << 40, Timestamp: at, Key: []byte("k"), Value: []byte("\xff\x00bad"),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("1")}, {Key: "trace", Value: []byte("2")}, {Key: "rollcall.reason", Value: []byte("theirs")}},
	}
	out := p.copyOf(in, "not_json")
	require.Equal(t, "dead", out.Topic)
	require.Equal(t, "k", string(out.Key))
	require.Equal(t, "\xff\x00bad", string(out.Value))
	require.Equal(t, in.Headers, out.Headers[:3], "theirs come first and untouched")
	require.Equal(t, map[string]string{
		"trace": "1|2", "rollcall.reason": "theirs|not_json", "rollcall.topic": "events", "rollcall.partition": "7",
		"rollcall.offset": "1099511627776", "rollcall.timestamp": "2026-03-10T12:00:00.123Z",
	}, headers(out))
	require.Len(t, in.Headers, 3)

	// The fetch buffer is used again; what is on its way must not change with it.
	copy(in.Key, "x")
	copy(in.Value, "xxxxx")
	require.Equal(t, "k", string(out.Key))
	require.Equal(t, "\xff\x00bad", string(out.Value))

	// A tombstone and an empty value are different things, and stay so.
	none := p.copyOf(&kgo.Record{}, "tombstone")
	require.Nil(t, none.Key)
	require.Nil(t, none.Value)
	empty := p.copyOf(&kgo.Record{Key: []byte{}, Value: []byte{}}, "not_json")
	require.NotNil(t, empty.Key)
	require.NotNil(t, empty.Value)
}

func TestCutEndsSmall(t *testing.T) {
	p := &Publisher{cfg: Config{Topic: "dead"}}
	big := func(n int) []byte { return bytes.Repeat([]byte("v"), n) }
	for name, in := range map[string]*kgo.Record{
		"value":                       {Topic: "events", Value: big(5 << 20), Key: []byte("k")},
		"key":                         {Topic: "events", Key: big(2 << 20), Value: []byte("v")},
		"header":                      {Topic: "events", Headers: []kgo.RecordHeader{{Key: "h", Value: big(2 << 20)}}},
		"header that looks like ours": {Topic: "events", Headers: []kgo.RecordHeader{{Key: "rollcall.reason", Value: big(2 << 20)}}},
		"everything":                  {Topic: "events", Key: big(2 << 20), Value: big(5 << 20), Headers: []kgo.RecordHeader{{Key: "h", Value: big(2 << 20)}}},
	} {
		t.Run(name, func(t *testing.T) {
			whole := p.copyOf(in, "not_json")
			out := cut(whole)
			if name == "value" {
				require.Len(t, out.Value, cutBytes, "most of it is kept")
				require.Equal(t, "k", string(out.Key))
			}
			size := func() int {
				n := len(out.Key) + len(out.Value)
				for _, h := range out.Headers {
					n += len(h.Key) + len(h.Value)
				}
				return n
			}
			for n := 0; size() > 4<<10; n++ {
				require.Less(t, n, 20, "it never gets small")
				out = cut(out)
			}
			h := headers(out)
			require.Equal(t, "true", h["rollcall.truncated"], "marked, and once")
			require.Equal(t, "events", h["rollcall.topic"])
			require.Equal(t, "0", h["rollcall.offset"])
			require.True(t, strings.HasSuffix(h["rollcall.reason"], "not_json"))
			require.NotContains(t, headers(whole), "rollcall.truncated", "the record before is left alone")
		})
	}
}
