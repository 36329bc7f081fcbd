package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The SASL mechanisms, as Kafka names them.
const (
	MechanismPlain       = "PLAIN"
	MechanismScramSHA256 = "SCRAM-SHA-256"
	MechanismScramSHA512 = "SCRAM-SHA-512"
	MechanismOAuthBearer = "OAUTHBEARER"
	MechanismAWSMSKIAM   = "AWS_MSK_IAM"
)

// SecurityConfig is how to talk to brokers. The zero value is plain TCP without authentication.
type SecurityConfig struct {
	// TLS turns encryption on; nil is off.
	TLS *TLSConfig
	// Mechanism is one of the mechanisms above, empty for none.
	Mechanism string
	// Username and Password are for PLAIN and SCRAM.
	Username, Password string
	// Token gives a bearer token for OAUTHBEARER, one per connection; it should keep one until shortly before its end.
	Token func(context.Context) (string, error)
	// AWS gives the keys for AWS_MSK_IAM. Without it the usual chain of the AWS SDK is asked: environment, shared files, container and
	// instance roles.
	AWS func(context.Context) (AWSKeys, error)
}

// TLSConfig names files in PEM. The client's certificate is read anew for every connection, so that it may be rotated.
type TLSConfig struct {
	// CAFile has the authorities to trust, instead of the system's.
	CAFile string
	// CertFile and KeyFile are the client's, both or none.
	CertFile, KeyFile string
	// ServerName is what brokers' certificates must say, instead of the address that was dialled.
	ServerName string
}

// AWSKeys are static or temporary AWS credentials.
type AWSKeys struct {
	AccessKey, SecretKey, SessionToken string
}

// SecurityOptions makes client options, for every client that talks to the brokers. It reads files and opens no connection.
func SecurityOptions(c SecurityConfig) ([]kgo.Opt, error) {
	var opts []kgo.Opt
	if c.TLS != nil {
		conf, err := c.TLS.load()
		if err != nil {
			return nil, fmt.Errorf("Kafka TLS: %w", err) //nolint:staticcheck // a name
		}
		opts = append(opts, kgo.DialTLSConfig(conf))
	}
	mechanism, err := c.mechanism()
	if err != nil {
		return nil, fmt.Errorf("Kafka SASL: %w", err) //nolint:staticcheck // a name
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (t *TLSConfig) load() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authorities: no certificate in %s", t.CAFile)
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	if t.CertFile != "" {
		pair := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("client certificate: %w", err)
			}
			return &cert, nil
		}
		if _, err := pair(); err != nil {
			return nil, err
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair() }
	}
	return conf, nil
}

func (c SecurityConfig) mechanism() (sasl.Mechanism, error) {
	needUser := func() error {
		if c.Username == "" || c.Password == "" {
			return fmt.Errorf("%s needs a user name and a password", c.Mechanism)
		}
		return nil
	}
	switch c.Mechanism {
	case "":
		return nil, nil
	case MechanismPlain:
		return plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism(), needUser()
	case MechanismScramSHA256:
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha256Mechanism(), needUser()
	case MechanismScramSHA512:
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha512Mechanism(), needUser()
	case MechanismOAuthBearer:
		if c.Token == nil {
			return nil, errors.New("OAUTHBEARER needs something that gives tokens")
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := c.Token(ctx)
			if err != nil {
				return oauth.Auth{}, fmt.Errorf("getting a token: %w", err)
			}
			return oauth.Auth{Token: token}, nil
		}), nil
	case MechanismAWSMSKIAM:
		keys := c.AWS
		if keys == nil {
			keys = new(awsChain).keys
		}
		return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
			k, err := keys(ctx)
			if err != nil {
				return aws.Auth{}, fmt.Errorf("getting AWS credentials: %w", err)
			}
			return aws.Auth{AccessKey: k.AccessKey, SecretKey: k.SecretKey, SessionToken: k.SessionToken}, nil
		}), nil
	}
	return nil, fmt.Errorf("mechanism %q: want one of %s, %s, %s, %s, %s", c.Mechanism,
		MechanismPlain, MechanismScramSHA256, MechanismScramSHA512, MechanismOAuthBearer, MechanismAWSMSKIAM)
}
