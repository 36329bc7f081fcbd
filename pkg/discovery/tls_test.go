package discovery

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/kafkatest"
)

// certificate is a self-signed one for one host name.
func certificate(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A certificate is checked against the configured name although the address was looked up, and one that does not fit is a refusal.
func TestTLSByName(t *testing.T) {
	cert, pool := certificate(t, "kafka.example")
	f := kafkatest.StartFakeT(t, kafkatest.FakeOptions{Brokers: 1, Opts: []kfake.Opt{
		kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}),
	}})
	_, port, err := net.SplitHostPort(f.Addrs()[0])
	require.NoError(t, err)
	with := func(host string, c *tls.Config) Config {
		return quick(Config{
			Seeds: []string{host + ":" + port}, Topics: []string{"t"}, Security: []kgo.Opt{kgo.DialTLSConfig(c)},
			Resolve: func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil },
		})
	}
	_, err = mustNew(t, with("kafka.example", &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})).First(t.Context())
	require.NoError(t, err)
	_, err = mustNew(t, with("other.example", &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ServerName: "kafka.example"})).First(t.Context())
	require.NoError(t, err, "a configured server name wins")
	for name, c := range map[string]Config{
		"other name": with("other.example", &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}),
		"unknown CA": with("kafka.example", &tls.Config{MinVersion: tls.VersionTLS12}),
	} {
		_, err = mustNew(t, c).First(t.Context())
		require.ErrorIs(t, err, ErrDenied, name)
		require.ErrorContains(t, err, "x509", name)
	}
}
