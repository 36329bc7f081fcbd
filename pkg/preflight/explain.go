package preflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// network explains what went wrong below any protocol; ok is false if it is nothing of the kind. setting names where the address stands.
func network(err error, setting, tlsPrefix string) (f fault, ok bool) {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var host x509.HostnameError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &dns):
		return fault{cause: fmt.Sprintf("the name %q cannot be resolved (%s)", dns.Name, dns.Err), remedy: "correct the name in " + setting + ", or let the worker reach its name server (a NetworkPolicy?)", outage: true}, true
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault{cause: "connection refused: the host is there and nothing listens on that port", remedy: "correct the port in " + setting + ", or start the server", outage: true}, true
	case errors.As(err, &host):
		return fault{cause: "its certificate is for another name: " + host.Error(), remedy: "set " + tlsPrefix + "SERVER_NAME to the name in the certificate, or use that name in " + setting}, true
	case errors.As(err, &cert):
		return fault{cause: "its certificate is not trusted: " + cert.Err.Error(), remedy: "put the authority that signed it into " + tlsPrefix + "CA_FILE"}, true
	case errors.As(err, &record):
		return fault{cause: "it does not speak TLS on this port", remedy: "use its TLS port in " + setting + ", or connect without TLS (" + tlsPrefix + "ENABLED=false, or http://)"}, true
	case errors.As(err, &alert):
		return fault{cause: "it ended the TLS handshake: " + alert.Error(), remedy: "check " + tlsPrefix + "CERT_FILE and " + tlsPrefix + "KEY_FILE: it may want a client certificate"}, true
	case timedOut(err):
		return fault{cause: "no answer within " + tryTimeout.String(), remedy: "check host and port in " + setting + " and what lies between (NetworkPolicy, firewall, security group)", outage: true}, true
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fault{cause: "there is no route to it", remedy: "check the address in " + setting + " and the network of the pod", outage: true}, true
	}
	return fault{}, false
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

func cut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// broker explains an error of a connection to a broker.
func (k KafkaConfig) broker(err error) fault {
	const seeds, prefix = "KAFKA_BROKERS", "KAFKA_TLS_"
	var first *kgo.ErrFirstReadEOF
	var code *kerr.Error
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fault{cause: "the broker refuses the user or the password: " + innermost(err), remedy: "correct KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD (or the token), or KAFKA_SASL_MECHANISM if the user is kept for another one"}
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fault{cause: "the broker does not offer this SASL mechanism", remedy: "set KAFKA_SASL_MECHANISM to one that it has enabled"}
	case errors.Is(err, kerr.IllegalSaslState):
		return fault{cause: "the broker does not expect SASL on this port", remedy: "use the listener for SASL in " + seeds + ", or leave KAFKA_SASL_MECHANISM out"}
	case strings.Contains(err.Error(), "invalid large response size") && !strings.Contains(err.Error(), "tls alert record"):
		return fault{cause: "it does not answer as a Kafka broker on this port", remedy: "use a broker's port in " + seeds}
	case strings.Contains(err.Error(), "tls alert record"):
		return fault{cause: "it speaks TLS on this port, and the connection was plain", remedy: "set KAFKA_TLS_ENABLED=true, or use its plain port in " + seeds}
	case errors.As(err, &code):
		return fault{cause: "the broker answers " + code.Error(), remedy: "see the broker's log", outage: kerr.IsRetriable(code)}
	}
	if f, ok := network(err, seeds, prefix); ok {
		return f
	}
	if errors.As(err, &first) || cut(err) {
		return k.closed()
	}
	return fault{cause: innermost(err), remedy: "see the broker's log; is it a Kafka broker?", outage: true}
}

// closed explains a broker that ends the connection without a word, which is how brokers answer a protocol that they do not expect.
func (k KafkaConfig) closed() fault {
	switch {
	case k.TLS:
		return fault{cause: "it ends the connection during the TLS handshake: it does not speak TLS on this port", remedy: "use its TLS port in KAFKA_BROKERS, or set KAFKA_TLS_ENABLED=false"}
	case !k.SASL:
		return fault{cause: "it ends the connection at the first request: it wants SASL (or TLS), and KAFKA_SASL_MECHANISM is not set", remedy: "set KAFKA_SASL_MECHANISM, KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD, and KAFKA_TLS_ENABLED=true if the port is for TLS"}
	default:
		return fault{cause: "it ends the connection at the log-in: wrong user, password or mechanism, or a port without SASL", remedy: "correct KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD, KAFKA_SASL_MECHANISM, or take the listener for SASL in KAFKA_BROKERS (with KAFKA_TLS_ENABLED=true if it is SASL_SSL)"}
	}
}

// mute explains a broker that takes connections and says nothing.
func (k KafkaConfig) mute() fault {
	f := fault{cause: "it takes the connection and does not answer within " + tryTimeout.String() + ": it hangs, or this is no broker's port", remedy: "see the broker's log, and correct the port in KAFKA_BROKERS", outage: true}
	if k.TLS {
		f.cause, f.remedy = f.cause+", or one without TLS", f.remedy+", or set KAFKA_TLS_ENABLED=false"
	}
	return f
}

// sql explains an error over MySQL.
func (s StarRocksConfig) sql(err error) fault {
	var m *mysql.MySQLError
	if errors.As(err, &m) {
		text := strings.ToLower(m.Message)
		switch {
		case m.Number == 1045 || m.Number == 1044 && strings.Contains(text, "password"):
			return fault{cause: "the front end refuses the user or the password: " + m.Message, remedy: "correct STARROCKS_USER and STARROCKS_PASSWORD (or the file of STARROCKS_PASSWORD_FILE)"}
		case m.Number == 1044, m.Number == 1142, m.Number == 1227, m.Number == 5203, strings.Contains(text, "access denied"):
			return fault{cause: "not allowed: " + m.Message, remedy: s.grant()}
		}
		return fault{cause: "the front end answers: " + m.Message, remedy: "see the front end's log", outage: true}
	}
	if errors.Is(err, mysql.ErrNoTLS) {
		return fault{cause: "the front end does not offer TLS over MySQL", remedy: "set STARROCKS_TLS_ENABLED=false, or enable SSL on the front end"}
	}
	if f, ok := network(err, "STARROCKS_MYSQL", "STARROCKS_TLS_"); ok {
		return f
	}
	if cut(err) || errors.Is(err, mysql.ErrMalformPkt) || errors.Is(err, mysql.ErrPktSync) || errors.Is(err, mysql.ErrInvalidConn) {
		return fault{cause: "it does not speak the MySQL protocol on this port (" + innermost(err) + ")", remedy: "use the front end's query_port (9030) in STARROCKS_MYSQL"}
	}
	return fault{cause: innermost(err), remedy: "see the front end's log", outage: true}
}

func (s StarRocksConfig) grant() string {
	return fmt.Sprintf("GRANT SELECT, INSERT ON TABLE %s.%s TO USER '%s'; with TABLE_MODE=create also CREATE TABLE and CREATE VIEW on the database", s.Database, s.Table, s.User)
}

// web explains an error over HTTP.
func web(err error) fault {
	if f, ok := network(err, "STARROCKS_HTTP", "STARROCKS_TLS_"); ok {
		return f
	}
	text := innermost(err)
	switch {
	case strings.Contains(text, "HTTP response to HTTPS client"):
		return fault{cause: "it does not speak TLS on this port", remedy: "write http:// in STARROCKS_HTTP, or the front end's https_port"}
	case cut(err), errors.Is(err, errSpokeFirst), strings.Contains(err.Error(), "malformed HTTP"):
		return fault{cause: "it does not answer in HTTP on this port (" + text + ")", remedy: "use the front end's http_port (8030) in STARROCKS_HTTP, or https:// for its https_port"}
	}
	return fault{cause: text, remedy: "see the front end's log", outage: true}
}

// innermost is the text of the innermost error: the layers between say nothing to an operator.
func innermost(err error) string {
	for {
		var next error
		switch x := err.(type) { //nolint:errorlint // walking the chain itself
		case interface{ Unwrap() error }:
			next = x.Unwrap()
		case interface{ Unwrap() []error }:
			if errs := x.Unwrap(); len(errs) > 0 {
				next = errs[0]
			}
		}
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
