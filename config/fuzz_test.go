package config

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzLoad takes a whole environment, one variable per line. Load returns an
// error with at least one problem per line, or a configuration that loads
// again, to the same, from what it says is in effect.
func FuzzLoad(f *testing.F) {
	const valid = "KAFKA_BROKERS=k:9092\nKAFKA_TOPICS=t\nKAFKA_GROUP=g\nSTARROCKS_HTTP=http://f:8030\nSTARROCKS_MYSQL=f:9030\nSTARROCKS_USER=u\nSTARROCKS_DATABASE=d\nSTARROCKS_TABLE=t"
	f.Add("")
	f.Add(valid)
	f.Add(valid + "\nKAFKA_START=offsets:t/0=1\nAGGREGATE_DIMENSIONS=a,b=c.d\nAGGREGATE_MEASURES=x=sum(a,2)\nEVENT_TIME_FIELD=ts\nEVENT_TIME_FORMAT=2006-01-02")
	f.Add(valid + "\nKAFKA_SASL_MECHANISM=PLAIN\nKAFKA_SASL_USERNAME=u\nKAFKA_SASL_PASSWORD_FILE=/f\nKAFKA_TLS_ENABLED=true\nKAFKA_TLS_CA_FILE=/f\nKAFKA_PORT=tcp://x:1")
	f.Add(valid + "\nKAFKA_TOPICS=/a{1,2}/\nTABLE_BUCKETS=auto\nSTARROCKS_VIEW=none\nCHECKPOINT_STORE=file:/x\nKAFKA_TOPIC=x")
	f.Fuzz(func(t *testing.T, text string) {
		readFile := func(string) ([]byte, error) { return []byte("s\n"), nil }
		c, err := Load(strings.Split(text, "\n"), readFile)
		if err != nil {
			var e *Error
			require.True(t, errors.As(err, &e))
			require.Nil(t, c)
			require.NotEmpty(t, e.Problems)
			require.Equal(t, len(e.Problems), strings.Count(err.Error(), "\n"))
			require.True(t, utf8.ValidString(err.Error()))
			return
		}
		var environ []string
		for _, f := range fields(c) {
			raw := c.raw[f.Name]
			switch {
			case raw.source == FromFile:
				environ = append(environ, f.Name+"_FILE="+raw.text)
			case f.Secret:
				environ = append(environ, f.Name+"="+f.value.Interface().(Secret).Value())
			case raw.source == FromEnvironment:
				environ = append(environ, f.Name+"="+raw.text)
			}
		}
		again, err := Load(environ, readFile)
		require.NoError(t, err)
		require.Equal(t, c.Effective(), again.Effective())
		require.Equal(t, c.Aggregate, again.Aggregate)
		require.Equal(t, c.Kafka.Start, again.Kafka.Start)
		require.NotEmpty(t, c.Worker)
	})
}

// FuzzMeasures: what is accepted can be written back and read to the same.
func FuzzMeasures(f *testing.F) {
	for _, seed := range []string{"uv=distinct(user_id),pv=count", "a=sum(x,2)", "a=min(x.y),b=max(z,1)", "a=distinct_hash(s)", "a=sum((", "=,=", "a=b(c)d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var m Measures
		if len(m.set(text)) > 0 {
			return
		}
		require.NotEmpty(t, m)
		var parts []string
		for _, x := range m {
			require.Regexp(t, identifier, x.Name)
			require.True(t, x.Scale >= 0 && x.Scale <= maxScale)
			part := x.Name + "=" + string(x.Kind)
			switch {
			case x.Kind == Count:
				require.Empty(t, x.Field)
			case x.Scale > 0:
				part += "(" + x.Field + "," + string(rune('0'+x.Scale)) + ")"
			default:
				require.NotEmpty(t, x.Field)
				part += "(" + x.Field + ")"
			}
			parts = append(parts, part)
		}
		var again Measures
		require.Empty(t, again.set(strings.Join(parts, ",")))
		require.Equal(t, m, again)
	})
}

// FuzzStart: what is accepted is complete for its mode.
func FuzzStart(f *testing.F) {
	for _, seed := range []string{"earliest", "group", "timestamp:2026-01-31T00:00:00Z", "offsets:a/0=1;b/2=3", "offsets:a/0", "timestamp:", "offsets:;"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var stop Stop
		if len(stop.set(text)) == 0 {
			require.Contains(t, []string{ModeLatest, ModeTimestamp}, stop.Mode)
		}
		var s Start
		if len(s.set(text)) > 0 {
			return
		}
		switch s.Mode {
		case ModeEarliest, ModeLatest, ModeGroup:
		case ModeTimestamp:
			require.GreaterOrEqual(t, s.At.UnixMilli(), int64(0))
		case ModeOffsets:
			require.NotEmpty(t, s.Offsets)
			for topic, partitions := range s.Offsets {
				require.True(t, isTopic(topic))
				for p, o := range partitions {
					require.True(t, p >= 0 && o >= 0)
				}
			}
		default:
			t.Fatalf("mode %q", s.Mode)
		}
	})
}

// FuzzSize: a size is never negative and survives being written.
func FuzzSize(f *testing.F) {
	for _, seed := range []string{"64MiB", "1", "0", "12KB", "9223372036854775807", "-1", "1TiB", "Mi"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseBytes(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		again, err := parseBytes(Bytes(n).String())
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}
