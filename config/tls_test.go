package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair makes a self-signed certificate for localhost and its key, as PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"kafka.internal"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// TestTLSHandshake connects with the settings: the authority and the server
// name are checked, and a renewed client certificate is the one shown.
func TestTLSHandshake(t *testing.T) {
	cert, key := pair(t)
	f := files{"/ca": cert, "/c": cert, "/k": key}
	c, err := load(f, "KAFKA_TLS_ENABLED=true", "KAFKA_TLS_CA_FILE=/ca", "KAFKA_TLS_CERT_FILE=/c", "KAFKA_TLS_KEY_FILE=/k", "KAFKA_TLS_SERVER_NAME=kafka.internal")
	require.NoError(t, err)
	require.Empty(t, c.Warnings)
	client, err := c.KafkaTLS.ClientConfig(f.read)
	require.NoError(t, err)

	serverPair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	require.NoError(t, err)
	server := &tls.Config{Certificates: []tls.Certificate{serverPair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	shown := func() []byte {
		a, b := net.Pipe()
		defer func() { _, _ = a.Close(), b.Close() }()
		deadline := time.Now().Add(10 * time.Second)
		_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
		peer := tls.Server(b, server)
		done := make(chan error, 1)
		go func() { done <- peer.Handshake() }()
		require.NoError(t, tls.Client(a, client).Handshake())
		require.NoError(t, <-done)
		return peer.ConnectionState().PeerCertificates[0].Raw
	}
	first := shown()
	f["/c"], f["/k"] = pair(t)
	require.NotEqual(t, first, shown())

	c.KafkaTLS.ServerName = "elsewhere"
	client, err = c.KafkaTLS.ClientConfig(f.read)
	require.NoError(t, err)
	require.Equal(t, "elsewhere", client.ServerName)
}

// TestTLSFilesOfHTTPS: the StarRocks files serve https addresses too, with
// TLS of the MySQL side off.
func TestTLSFilesOfHTTPS(t *testing.T) {
	cert, _ := pair(t)
	_, err := load(files{"/ca": cert}, "STARROCKS_HTTP=https://fe1:8443", "STARROCKS_TLS_CA_FILE=/ca")
	require.NoError(t, err)
	_, err = load(nil, "STARROCKS_HTTP=https://fe1:8443", "STARROCKS_TLS_CA_FILE=/ca")
	require.ErrorContains(t, err, `STARROCKS_TLS_CA_FILE: "/ca" cannot be read`)
	_, err = load(files{"/ca": cert}, "STARROCKS_TLS_CA_FILE=/ca")
	require.ErrorContains(t, err, "STARROCKS_TLS_ENABLED: not set, but STARROCKS_TLS_CA_FILE is")
	_, err = load(nil, "STARROCKS_TLS_ENABLED=false", "STARROCKS_TLS_CA_FILE=/ca")
	require.NoError(t, err, "said explicitly, off is off")
}
