package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What real brokers and front ends say and the fakes of the other tests do not.
func TestExplainWhatBrokersSay(t *testing.T) {
	plain, sasl, secure := KafkaConfig{}, KafkaConfig{SASL: true}, KafkaConfig{TLS: true}
	for _, c := range []struct {
		name          string
		k             KafkaConfig
		err           error
		cause, remedy string
		outage        bool
	}{
		{"refused log-in", sasl, fmt.Errorf("sasl: %w", kerr.SaslAuthenticationFailed), "user or the password", "KAFKA_SASL_PASSWORD", false},
		{"mechanism not enabled", sasl, kerr.UnsupportedSaslMechanism, "mechanism", "KAFKA_SASL_MECHANISM", false},
		{"SASL not expected", sasl, kerr.IllegalSaslState, "does not expect SASL", "KAFKA_SASL_MECHANISM", false},
		{"cut in the TLS handshake", secure, io.EOF, "does not speak TLS", "KAFKA_TLS_ENABLED=false", false},
		{"no TLS record", secure, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, "does not speak TLS", "KAFKA_TLS_ENABLED=false", false},
		{"client certificate wanted", secure, tls.AlertError(116), "ended the TLS handshake", "KAFKA_TLS_CERT_FILE", false},
		{"cut without SASL", plain, io.ErrUnexpectedEOF, "wants SASL", "KAFKA_SASL_MECHANISM", false},
		{"time is up", plain, context.DeadlineExceeded, "no answer", "NetworkPolicy", true},
		{"dial time is up", plain, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "no answer", "NetworkPolicy", true},
		{"a broker that starts", plain, kerr.CoordinatorLoadInProgress, "COORDINATOR_LOAD_IN_PROGRESS", "log", true},
		{"a code for good", plain, kerr.ClusterAuthorizationFailed, "CLUSTER_AUTHORIZATION_FAILED", "log", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := c.k.broker(c.err)
			require.Contains(t, f.cause, c.cause)
			require.Contains(t, f.remedy, c.remedy)
			require.Equal(t, c.outage, f.outage)
		})
	}
}

func TestExplainWhatFrontEndsSay(t *testing.T) {
	s := StarRocksConfig{Database: "dau", Table: "daily", User: "w"}
	for _, c := range []struct {
		err           error
		cause, remedy string
	}{
		{&mysql.MySQLError{Number: 1045, Message: "Access denied for user 'w' (using password: YES)"}, "user or the password", "STARROCKS_PASSWORD"},
		{&mysql.MySQLError{Number: 5203, Message: "Access denied; you need SELECT"}, "not allowed", "GRANT SELECT, INSERT ON TABLE dau.daily"},
		{&mysql.MySQLError{Number: 1064, Message: "Access denied; you need SELECT"}, "not allowed", "GRANT SELECT"},
		{mysql.ErrNoTLS, "does not offer TLS", "STARROCKS_TLS_ENABLED=false"},
		{mysql.ErrMalformPkt, "does not speak the MySQL protocol", "query_port"},
		{errors.New("other"), "other", "log"},
	} {
		f := s.sql(c.err)
		require.Contains(t, f.cause, c.cause)
		require.Contains(t, f.remedy, c.remedy)
	}
}

func TestAuthorizedOperations(t *testing.T) {
	require.True(t, may(math.MinInt32, kmsg.ACLOperationRead), "a broker that does not say leaves it open")
	require.True(t, may(1<<3, kmsg.ACLOperationRead))
	require.False(t, may(1<<8, kmsg.ACLOperationRead), "DESCRIBE is not READ")
	require.False(t, may(0, kmsg.ACLOperationWrite))
}

// A line is one line whatever servers say.
func TestResultIsOneLine(t *testing.T) {
	r := Result{Level: Fail, Name: "x", Detail: "a\n\tb", Remedy: "c"}
	require.Equal(t, "FAIL  x: a b — c", r.String())
	require.Equal(t, "ok    y", Result{Level: OK, Name: "y"}.String())
	require.False(t, strings.Contains(r.String(), "\n"))
}

// A server that speaks first is no front end, also if its greeting has ended the connection before the request is written.
func TestAServerThatSpeaksFirst(t *testing.T) {
	ended := make(chan struct{})
	dial := func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer close(ended)
			_, _ = io.WriteString(server, "J\x00\x00\x00\n8.0.33\x00")
			_, _ = io.Copy(io.Discard, server)
		}()
		return client, nil
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { <-ended }})
	try := &rocksTry{cfg: StarRocksConfig{Database: "dau", Table: "daily", Dial: dial}}
	_, f := try.redirect(ctx, "http://fe:9030")
	require.NotNil(t, f)
	require.Contains(t, f.cause, "does not answer in HTTP")
	require.Contains(t, f.remedy, "http_port (8030)")
	require.False(t, f.outage)
}
