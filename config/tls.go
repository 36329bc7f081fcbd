package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// The SASL mechanisms, as KAFKA_SASL_MECHANISM spells them.
const (
	PLAIN       = "PLAIN"
	SCRAM256    = "SCRAM-SHA-256"
	SCRAM512    = "SCRAM-SHA-512"
	OAUTHBEARER = "OAUTHBEARER"
	AWSMSKIAM   = "AWS_MSK_IAM"
)

// TLS is how one kind of connection is protected. Its names carry the prefix
// of the group they stand in.
type TLS struct {
	Enabled    bool   `env:"ENABLED" envDefault:"false" doc:"Whether to connect with TLS."`
	CAFile     string `env:"CA_FILE" format:"a PEM file" doc:"The authorities to trust, instead of those of the system."`
	CertFile   string `env:"CERT_FILE" format:"a PEM file" doc:"The certificate the worker shows. It is read again for every connection, so a renewed one needs no restart."`
	KeyFile    string `env:"KEY_FILE" format:"a PEM file" doc:"The key of that certificate."`
	ServerName string `env:"SERVER_NAME" doc:"The name the server must prove, where it is not the one connected to (behind a proxy or a tunnel)."`
}

var errNoCertificate = errors.New("no certificate in PEM form in it")

// ClientConfig returns the client side of these settings, whether or not
// Enabled is set. The authorities are read now, certificate and key at every
// handshake, through readFile.
func (t TLS) ClientConfig(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := readFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read authorities %s: %w", t.CAFile, errNoCertificate)
		}
	}
	if t.CertFile != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return t.keyPair(readFile)
		}
	}
	return c, nil
}

func (t TLS) keyPair(readFile func(string) ([]byte, error)) (*tls.Certificate, error) {
	cert, err := readFile(t.CertFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	key, err := readFile(t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", t.CertFile, t.KeyFile, err)
	}
	return &pair, nil
}

// checkTLS reads the files once, so that a wrong path is a problem of the
// settings and not of the first connection.
func (l *loader) checkTLS(prefix string, t TLS) {
	if !l.fine(prefix + "ENABLED") {
		return
	}
	given := func() (names []string) {
		for _, name := range []string{"CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER_NAME"} {
			if l.given(prefix + name) {
				names = append(names, prefix+name)
			}
		}
		return names
	}()
	if !t.Enabled && !l.tlsElsewhere(prefix) {
		// Said explicitly, false wins; unsaid, the rest looks like an oversight.
		if len(given) > 0 && !l.given(prefix+"ENABLED") {
			l.problem(prefix+"ENABLED", Problem{Found: "not set, but " + given[0] + " is", Allowed: "true or false", Remedy: "set it to true, or to false to connect without TLS all the same"})
		}
		return
	}
	l.checkPair(prefix+"CERT_FILE", prefix+"KEY_FILE", "a certificate needs its key")
	for _, f := range []struct{ name, path string }{{"CA_FILE", t.CAFile}, {"CERT_FILE", t.CertFile}, {"KEY_FILE", t.KeyFile}} {
		if f.path == "" {
			continue
		}
		if _, err := l.readFile(f.path); err != nil {
			l.problem(prefix+f.name, Problem{Found: quote(f.path) + " cannot be read: " + fileReason(err), Allowed: "a readable PEM file", Remedy: "mount it there or correct the path"})
		}
	}
	if l.fine(prefix + "CA_FILE") {
		if _, err := t.ClientConfig(l.readFile); err != nil {
			l.problem(prefix+"CA_FILE", Problem{Found: quote(t.CAFile) + " has no certificate in it", Allowed: "a PEM file with certificates", Remedy: "check that it is PEM and not DER or a key"})
		}
	}
	if t.CertFile != "" && t.KeyFile != "" && l.fine(prefix+"CERT_FILE", prefix+"KEY_FILE") {
		if _, err := t.keyPair(l.readFile); err != nil {
			l.problem(prefix+"CERT_FILE", Problem{Found: quote(t.CertFile) + " and its key do not make a pair", Allowed: "a certificate and its key, both PEM", Remedy: "check that both files belong together"})
		}
	}
}

// tlsElsewhere reports whether the files serve connections that ENABLED is not
// about: the https addresses of StarRocks.
func (l *loader) tlsElsewhere(prefix string) bool {
	if prefix != "STARROCKS_TLS_" {
		return false
	}
	for _, u := range l.cfg.StarRocks.HTTP {
		if len(u) > 5 && u[:5] == "https" {
			return true
		}
	}
	return false
}
