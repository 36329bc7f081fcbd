package starrocks

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink"
)

// https serves addr over TLS; its certificate is for example.com and signed by itself.
func (n *network) https(t *testing.T, addr string, h http.HandlerFunc) *x509.Certificate {
	t.Helper()
	l, err := n.listen("tcp", addr)
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(h)
	require.NoError(t, s.Listener.Close())
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Certificate()
}

func TestTLS(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		cert := n.https(t, "example.com:8443", redirectTo("https://be.example.com:8444"))
		n.https(t, "be.example.com:8444", reply(success("L", 1)))
		n.http("be1:8040", reply(success("L", 1)))
		n.https(t, "example.com:8445", redirectTo("http://be1:8040"))
		roots := x509.NewCertPool()
		roots.AddCert(cert)
		load := func(address string, change func(*Config)) sink.Reply {
			cfg := testConfig(n, address)
			cfg.TLS = &tls.Config{RootCAs: roots}
			if change != nil {
				change(&cfg)
			}
			c := newClient(t, cfg)
			return c.Load(t.Context(), "L", testBody(t, c))
		}
		requireDone(t, load("https://example.com:8443", func(c *Config) { c.TLS.ServerName = "example.com" }))

		// A certificate that is not trusted, or of another name, has to be put right by somebody.
		for _, change := range []func(*Config){
			func(c *Config) { c.TLS = nil },
			func(c *Config) { c.TLS.ServerName = "other.org" },
		} {
			rep := load("https://example.com:8443", change)
			require.Equal(t, sink.OutcomeFailed, rep.Outcome)
			require.Equal(t, sink.ClassPermanent, rep.Class)
			require.Equal(t, ReasonTLS, rep.Reason)
		}
		// From TLS to plain only where it is allowed; the password is not shown before.
		before := len(n.dialled())
		rep := load("https://example.com:8445", nil)
		require.Equal(t, sink.ClassPermanent, rep.Class)
		require.Equal(t, ReasonPlainRedirect, rep.Reason)
		require.Equal(t, []string{"example.com:8445"}, n.dialled()[before:])
		requireDone(t, load("https://example.com:8445", func(c *Config) { c.AllowPlainRedirect = true }))
		// TLS spoken to a plain port, and the other way round.
		rep = load("https://be1:8040", nil)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
		rep = load("http://example.com:8443", nil)
		require.Equal(t, sink.OutcomeFailed, rep.Outcome)
	})
}
