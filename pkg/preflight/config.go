package preflight

import (
	"context"
	"crypto/tls"
	"net"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"rollcall/pkg/sink/starrocks"
)

// tryTimeout bounds one try at one address; it is what the worker's own first tries get.
const tryTimeout = 5 * time.Second

// KafkaConfig is what is tried of Kafka.
type KafkaConfig struct {
	// Brokers are the addresses of the settings.
	Brokers []string
	// Security are the options that reach a broker, as for the worker's clients. TLS and SASL say what is among them, for remedies.
	Security  []kgo.Opt
	TLS, SASL bool
	// Topics are names; or Pattern with Excluded.
	Topics   []string
	Pattern  *regexp.Regexp
	Excluded func(topic string) bool
	Group    string
	// DeadLetter is empty without such a topic.
	DeadLetter string
	// Dial is nil for a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// StarRocksConfig is what is tried of StarRocks.
type StarRocksConfig struct {
	// HTTP and MySQL are the front ends' addresses of the settings.
	HTTP, MySQL     []string
	User, Password  string
	Database, Table string
	// HTTPTLS and MySQLTLS are nil for plain.
	HTTPTLS, MySQLTLS *tls.Config
	// PlainRedirect lets an https front end send loads on to http (STARROCKS_TLS_ALLOW_PLAIN_REDIRECT).
	PlainRedirect bool
	// Shape compares table and view with what is expected and changes nothing (starrocks.Table.Check).
	Shape func(context.Context) error
	Mode  starrocks.Mode
	// Restores says that totals are read back from the table.
	Restores bool
	// Client makes the worker's own load client for one front end.
	Client func(front string) (*starrocks.Client, error)
	// Dial is nil for a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func orDialer(d dialFunc) dialFunc {
	if d == nil {
		return (&net.Dialer{}).DialContext
	}
	return d
}

// reach opens and closes a connection.
func reach(ctx context.Context, dial dialFunc, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	conn, err := orDialer(dial)(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}
