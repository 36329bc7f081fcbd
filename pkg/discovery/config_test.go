package discovery

import (
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestConfig(t *testing.T) {
	ok := Config{Seeds: []string{"b:9092"}, Topics: []string{"t"}}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string // in the error; empty: none
	}{
		"defaults":             {func(*Config) {}, ""},
		"pattern":              {func(c *Config) { c.Topics, c.Pattern = nil, regexp.MustCompile("x") }, ""},
		"no seeds":             {func(c *Config) { c.Seeds = nil }, "no seed"},
		"bad port":             {func(c *Config) { c.Seeds = []string{"b:x"} }, `"b:x"`},
		"bad host":             {func(c *Config) { c.Seeds = []string{"http://b:1"} }, "host:port"},
		"neither":              {func(c *Config) { c.Topics = nil }, "neither"},
		"both":                 {func(c *Config) { c.Pattern = regexp.MustCompile("x") }, "exclude each other"},
		"all excluded":         {func(c *Config) { c.Exclude = []string{"/t/"} }, "all topics"},
		"bad exclude":          {func(c *Config) { c.Exclude = []string{"/(/"} }, "exclude"},
		"request over timeout": {func(c *Config) { c.Timeout = 3 * time.Second }, "longer than"},
		"request too short":    {func(c *Config) { c.RequestTimeout = time.Millisecond }, "100ms"},
		"negative":             {func(c *Config) { c.Interval = -1 }, "negative"},
		"security":             {func(c *Config) { c.Security = []kgo.Opt{kgo.DialTLS(), kgo.Dialer((&net.Dialer{}).DialContext)} }, "security"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ok
			tc.change(&c)
			_, err := New(c)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
	// All problems at once.
	_, err := New(Config{Exclude: []string{"/(/"}})
	require.ErrorContains(t, err, "no seed")
	require.ErrorContains(t, err, "neither")
	require.ErrorContains(t, err, "exclude")
}

func TestSeeds(t *testing.T) {
	for in, want := range map[string]string{
		"b": "b:9092", "b:1": "b:1", "10.0.0.1": "10.0.0.1:9092", "::1": "[::1]:9092", "[::1]": "[::1]:9092", "[::1]:7": "[::1]:7",
	} {
		hp, err := parseSeed(in)
		require.NoError(t, err, in)
		require.Equal(t, want, hp.addr())
	}
	for _, in := range []string{"", ":1", "b:0", "b:65536", "a b:1", "b:1:2"} {
		_, err := parseSeed(in)
		require.Error(t, err, in)
	}
}

func TestWants(t *testing.T) {
	s, err := Config{Seeds: []string{"b"}, Pattern: regexp.MustCompile("^ev"), Exclude: []string{"events-old", `/\.tmp$/`}}.settle()
	require.NoError(t, err)
	for topic, want := range map[string]bool{
		"events": true, "ev": true, "events-old": false, "events-older": true, "events.tmp": false, "my-events": false,
	} {
		require.Equal(t, want, s.wants(topic, false), topic)
		require.False(t, s.wants(topic, true), topic)
	}
	s, err = Config{Seeds: []string{"b"}, Topics: []string{"a", "b", "a"}, Exclude: []string{"b"}}.settle()
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, s.Topics)
	require.True(t, s.wants("a", false))
	require.False(t, s.wants("b", false))
	require.False(t, s.wants("c", false))
}
