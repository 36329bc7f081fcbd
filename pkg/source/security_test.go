package source

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// certificate makes a self-signed certificate for names and returns the files of it and of its key.
func certificate(t *testing.T, names ...string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
	return certFile, keyFile
}

// TLS both ways and each password mechanism, against a broker that demands them; the wrong authority and name are refused.
func TestSecureConnections(t *testing.T) {
	brokerCert, brokerKey := certificate(t, "kafka.internal")
	clientCert, clientKey := certificate(t, "worker")
	pair, err := tls.LoadX509KeyPair(brokerCert, brokerKey)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	clientPEM, err := os.ReadFile(clientCert)
	require.NoError(t, err)
	clients.AppendCertsFromPEM(clientPEM)
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(MechanismPlain, "plain", "p"),
		kfake.Superuser(MechanismScramSHA256, "scram", "s256"), kfake.Superuser(MechanismScramSHA512, "scram5", "s512"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}))
	require.NoError(t, err)
	defer kafka.Close()

	good := TLSConfig{CAFile: brokerCert, CertFile: clientCert, KeyFile: clientKey, ServerName: "kafka.internal"}
	for name, c := range map[string]struct {
		security SecurityConfig
		ok       bool
	}{
		"plain":         {SecurityConfig{TLS: &good, Mechanism: MechanismPlain, Username: "plain", Password: "p"}, true},
		"scram 256":     {SecurityConfig{TLS: &good, Mechanism: MechanismScramSHA256, Username: "scram", Password: "s256"}, true},
		"scram 512":     {SecurityConfig{TLS: &good, Mechanism: MechanismScramSHA512, Username: "scram5", Password: "s512"}, true},
		"no login":      {SecurityConfig{TLS: &good}, false},
		"other name":    {SecurityConfig{TLS: &TLSConfig{CAFile: brokerCert, CertFile: clientCert, KeyFile: clientKey}, Mechanism: MechanismPlain, Username: "plain", Password: "p"}, false},
		"no authority":  {SecurityConfig{TLS: &TLSConfig{CertFile: clientCert, KeyFile: clientKey, ServerName: "kafka.internal"}, Mechanism: MechanismPlain, Username: "plain", Password: "p"}, false},
		"no client":     {SecurityConfig{TLS: &TLSConfig{CAFile: brokerCert, ServerName: "kafka.internal"}, Mechanism: MechanismPlain, Username: "plain", Password: "p"}, false},
		"plain TCP":     {SecurityConfig{Mechanism: MechanismPlain, Username: "plain", Password: "p"}, false},
		"other account": {SecurityConfig{TLS: &good, Mechanism: MechanismPlain, Username: "plain", Password: "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			opts, err := SecurityOptions(c.security)
			require.NoError(t, err)
			client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.RequestRetries(0))...)
			require.NoError(t, err)
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err = client.Ping(ctx); c.ok {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
				require.NoError(t, ctx.Err(), "it is refused, not waited for")
			}
		})
	}
}

func TestSecuritySettingsThatCannotWork(t *testing.T) {
	cert, key := certificate(t, "x")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]SecurityConfig{
		"no such file":           {TLS: &TLSConfig{CAFile: cert + ".gone"}},
		"no certificate":         {TLS: &TLSConfig{CAFile: empty}},
		"certificate alone":      {TLS: &TLSConfig{CertFile: cert}},
		"key is no key":          {TLS: &TLSConfig{CertFile: cert, KeyFile: cert}},
		"no password":            {Mechanism: MechanismPlain, Username: "u"},
		"no user":                {Mechanism: MechanismScramSHA512, Password: "p"},
		"nothing gives a token":  {Mechanism: MechanismOAuthBearer},
		"what is that mechanism": {Mechanism: "GSSAPI"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := SecurityOptions(c)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	_, err := SecurityOptions(SecurityConfig{TLS: &TLSConfig{CertFile: cert, KeyFile: key}})
	require.NoError(t, err)
	opts, err := SecurityOptions(SecurityConfig{})
	require.NoError(t, err)
	require.Empty(t, opts)
}

// Tokens and keys are asked for per connection, and a failure to get them is said with its cause.
func TestTokensAndKeys(t *testing.T) {
	noToken := errors.New("identity provider is away")
	m, err := SecurityConfig{Mechanism: MechanismOAuthBearer, Token: func(context.Context) (string, error) { return "", noToken }}.mechanism()
	require.NoError(t, err)
	_, _, err = m.Authenticate(t.Context(), "broker")
	require.ErrorIs(t, err, noToken)
	m, err = SecurityConfig{Mechanism: MechanismOAuthBearer, Token: func(context.Context) (string, error) { return "abc", nil }}.mechanism()
	require.NoError(t, err)
	_, first, err := m.Authenticate(t.Context(), "broker")
	require.NoError(t, err)
	require.Contains(t, string(first), "Bearer abc")

	m, err = SecurityConfig{Mechanism: MechanismAWSMSKIAM, AWS: func(context.Context) (AWSKeys, error) { return AWSKeys{AccessKey: "AKIA1", SecretKey: "s"}, nil }}.mechanism()
	require.NoError(t, err)
	require.Equal(t, MechanismAWSMSKIAM, m.Name())
	_, first, err = m.Authenticate(t.Context(), "b-1.c.kafka.eu-central-1.amazonaws.com:9098")
	require.NoError(t, err)
	require.Contains(t, string(first), "AKIA1")

	// Without keys of ours the chain is asked; the environment is its first link.
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIA2")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	m, err = SecurityConfig{Mechanism: MechanismAWSMSKIAM}.mechanism()
	require.NoError(t, err)
	_, first, err = m.Authenticate(t.Context(), "b-1.c.kafka.eu-central-1.amazonaws.com:9098")
	require.NoError(t, err)
	require.Contains(t, string(first), "AKIA2")
}
