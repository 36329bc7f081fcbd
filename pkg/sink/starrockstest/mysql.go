package starrockstest

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
	"github.com/dolthub/vitess/go/vt/sqlparser"
)

// mysqlServe returns what serves one MySQL connection of an FE; it returns when the connection is over.
func (c *Cluster) mysqlServe(ctx context.Context, f *frontend) func(net.Conn) {
	return func(conn net.Conn) {
		once := &oneListener{conn: &quietConn{Conn: conn, closed: make(chan struct{})}}
		h := &mysqlHandler{c: c, fe: f, ctx: ctx}
		ln, err := mysql.NewFromListener(once, authServer{c}, h, 0, 0)
		if err != nil {
			return
		}
		ln.ServerVersion = mysqlVersion
		ln.Accept()
	}
}

// oneListener hands out one connection and then blocks until that is closed: the library only serves from listeners,
// and its goroutine per connection must be joinable.
type oneListener struct {
	conn  *quietConn
	taken bool
}

func (l *oneListener) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.conn.closed
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

// quietConn reports a broken connection as its end, which the library does not log.
type quietConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (q *quietConn) Read(p []byte) (int, error) {
	n, err := q.Conn.Read(p)
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (q *quietConn) Close() error {
	err := q.Conn.Close()
	q.once.Do(func() { close(q.closed) })
	return err
}

// authServer checks mysql_native_password against Config.Users.
type authServer struct{ c *Cluster }

func (a authServer) AuthMethods() []mysql.AuthMethod {
	return []mysql.AuthMethod{mysql.NewMysqlNativeAuthMethod(a, a)}
}

func (a authServer) DefaultAuthMethodDescription() mysql.AuthMethodDescription {
	return mysql.MysqlNativePassword
}

func (a authServer) HandleUser(string, net.Addr) bool { return true }

func (a authServer) UserEntryWithHash(_ []*x509.Certificate, salt []byte, user string, response []byte, _ net.Addr) (mysql.Getter, error) {
	u, ok := a.c.user(user)
	if !ok || !bytes.Equal(response, mysql.ScramblePassword(salt, []byte(u.Password))) {
		using := "YES"
		if len(response) == 0 {
			using = "NO"
		}
		return nil, mysql.NewSQLError(mysql.ERAccessDeniedError, mysql.SSAccessDeniedError, "Access denied for user '%s' (using password: %s)", user, using)
	}
	return login(user), nil
}

type login string

func (l login) Get() *querypb.VTGateCallerID { return &querypb.VTGateCallerID{Username: string(l)} }

// mysqlHandler answers the commands of one connection; the library serialises them.
type mysqlHandler struct {
	c       *Cluster
	fe      *frontend
	ctx     context.Context //nolint:containedctx // the library passes none that ends with the cluster
	session session
}

func (h *mysqlHandler) NewConnection(*mysql.Conn) {
	h.session.version = h.c.cfg.Version
	h.session.now = time.Now
	h.c.engine.locked(func() { h.session.connectionID = uint32(h.c.engine.id()) })
}

func (h *mysqlHandler) ConnectionClosed(*mysql.Conn)                {}
func (h *mysqlHandler) ConnectionAborted(*mysql.Conn, string) error { return nil }
func (h *mysqlHandler) WarningCount(*mysql.Conn) uint16             { return 0 }

func (h *mysqlHandler) ComResetConnection(*mysql.Conn) error {
	h.session.db = ""
	return nil
}

func (h *mysqlHandler) ParserOptionsForConnection(*mysql.Conn) (sqlparser.ParserOptions, error) {
	return sqlparser.ParserOptions{}, nil
}

func (h *mysqlHandler) ComInitDB(_ *mysql.Conn, db string) error {
	var err error
	h.c.engine.locked(func() { err = h.c.engine.use(&h.session, db) })
	return wireError(err)
}

func (h *mysqlHandler) ComQuery(_ context.Context, conn *mysql.Conn, sql string, out mysql.ResultSpoolFn) error {
	return h.query(conn, sql, func(r *sqltypes.Result) error { return out(r, false) })
}

// ComMultiQuery runs the first of several statements and returns the rest.
func (h *mysqlHandler) ComMultiQuery(_ context.Context, conn *mysql.Conn, sql string, out mysql.ResultSpoolFn) (string, error) {
	first, rest := splitStatement(sql)
	return rest, h.query(conn, first, func(r *sqltypes.Result) error { return out(r, rest != "") })
}

func splitStatement(sql string) (first, rest string) {
	toks, err := lex(sql)
	if err != nil {
		return sql, ""
	}
	for _, t := range toks {
		if t.is(";") {
			return sql[:t.pos], strings.TrimSpace(sql[t.end:])
		}
	}
	return sql, ""
}

func (h *mysqlHandler) ComPrepare(context.Context, *mysql.Conn, string, *mysql.PrepareData) ([]*querypb.Field, error) {
	return nil, nil
}

// ComStmtExecute puts the parameters into the statement's text: every row a client sees comes from one code path.
func (h *mysqlHandler) ComStmtExecute(_ context.Context, conn *mysql.Conn, p *mysql.PrepareData, out func(*sqltypes.Result) error) error {
	sql, err := interpolate(p.PrepareStmt, p.BindVars)
	if err != nil {
		return wireError(err)
	}
	return h.query(conn, sql, out)
}

func interpolate(sql string, vars map[string]*querypb.BindVariable) (string, error) {
	toks, err := lex(sql)
	if err != nil {
		return "", err
	}
	var sb strings.Builder
	last, n := 0, 0
	for _, t := range toks {
		if !t.is("?") {
			continue
		}
		n++
		v, ok := vars[fmt.Sprintf("v%d", n)]
		if !ok {
			return "", fmt.Errorf("parameter %d is missing", n)
		}
		sb.WriteString(sql[last:t.pos])
		switch {
		case v.Type == sqltypes.Null:
			sb.WriteString("NULL")
		case sqltypes.IsIntegral(v.Type), sqltypes.IsFloat(v.Type):
			sb.Write(v.Value)
		default:
			sb.WriteString(quoteText(string(v.Value)))
		}
		last = t.end
	}
	sb.WriteString(sql[last:])
	return sb.String(), nil
}

// query lets faults happen around the statement and sends what it returned.
func (h *mysqlHandler) query(conn *mysql.Conn, sql string, out func(*sqltypes.Result) error) error {
	h.session.user = conn.User
	rec := &StatementRecord{FE: h.fe.number, User: conn.User, SQL: sql, At: time.Now()}
	h.c.engine.locked(func() { h.c.engine.stmts = append(h.c.engine.stmts, rec) })
	rel, err := h.execute(conn, sql)
	h.c.engine.locked(func() {
		rec.Done = true
		if err != nil {
			rec.Err = err.Error()
		} else if rel != nil {
			rec.Rows = len(rel.rows)
		}
		h.c.engine.touch()
	})
	if err != nil {
		return wireError(err)
	}
	return out(rel.wire())
}

func (h *mysqlHandler) execute(conn *mysql.Conn, sql string) (*relation, error) {
	if err := h.strike(conn, sql, AtSQL); err != nil {
		return nil, err
	}
	var rel *relation
	var err error
	h.c.engine.locked(func() { rel, err = h.c.runStatement(h.fe, &h.session, sql) })
	if err != nil {
		return nil, err
	}
	return rel, h.strike(conn, sql, AtSQLDone)
}

func (h *mysqlHandler) strike(conn *mysql.Conn, sql string, at Point) error {
	struck, actions := h.c.faults.strike(event{at: at, statement: sql, user: conn.User, fe: h.fe.number})
	for _, a := range actions {
		switch a.kind {
		case actHang:
			struck.hang(h.ctx, nil)
		case actSleep:
			timer := time.NewTimer(a.wait)
			select {
			case <-timer.C:
			case <-h.ctx.Done():
			}
			timer.Stop()
		case actReset, actClose:
			if t, ok := conn.Conn.(*quietConn); ok && a.kind == actReset {
				if l, ok := t.Conn.(interface{ SetLinger(sec int) error }); ok {
					l.SetLinger(0) //nolint:errcheck // best effort on the way out
				}
			}
			conn.Close()
			return errGone
		case actSQLError:
			return sqlErr(a.code, "%s", a.text)
		}
	}
	if h.ctx.Err() != nil {
		return errGone
	}
	return nil
}

// runStatement parses and executes under the lock.
func (c *Cluster) runStatement(f *frontend, s *session, sql string) (*relation, error) {
	p, err := newParser(sql)
	if err != nil {
		return nil, err
	}
	u, ok := c.user(s.user)
	if !ok {
		return nil, fmt.Errorf("unknown user %s", s.user)
	}
	st := &statement{p: p, session: s, user: u, q: &querier{e: c.engine, session: s, notYet: f.notYet(time.Now())}}
	return c.engine.exec(st)
}

// wireError gives an error its code; what has none is an analysis error.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	var se *sqlError
	if errors.As(err, &se) {
		return mysql.NewSQLError(se.code, se.state, "%s", err.Error())
	}
	msg := err.Error()
	if !strings.HasPrefix(msg, "Getting ") {
		msg = "Getting analyzing error. Detail message: " + msg
	}
	return mysql.NewSQLError(errCodeAnalysis, "HY000", "%s", msg)
}

// wire converts a result; a statement without rows is an empty OK.
func (r *relation) wire() *sqltypes.Result {
	if r == nil {
		return &sqltypes.Result{}
	}
	out := &sqltypes.Result{Fields: make([]*querypb.Field, len(r.cols)), Rows: make([][]sqltypes.Value, len(r.rows))}
	for i, c := range r.cols {
		out.Fields[i] = &querypb.Field{Name: c.name, OrgName: c.name, Table: c.qualifier, Type: wireType(c.typ), Charset: mysql.CharacterSetUtf8, ColumnLength: uint32(max(c.typ.length, 20))}
	}
	for i, row := range r.rows {
		out.Rows[i] = make([]sqltypes.Value, len(row))
		for k, v := range row {
			if s, ok := text(v); ok {
				out.Rows[i][k] = sqltypes.MakeTrusted(out.Fields[k].Type, []byte(s))
			}
		}
	}
	return out
}

// wireType is the MySQL type of a column; LARGEINT and sets travel as text. StarRocks: fe PrimitiveType.toMysqlType.
func wireType(t typ) querypb.Type {
	switch t.kind {
	case kindBoolean, kindTinyint:
		return sqltypes.Int8
	case kindSmallint:
		return sqltypes.Int16
	case kindInt:
		return sqltypes.Int32
	case kindBigint:
		return sqltypes.Int64
	case kindFloat:
		return sqltypes.Float32
	case kindDouble:
		return sqltypes.Float64
	case kindDate:
		return sqltypes.Date
	case kindDatetime:
		return sqltypes.Datetime
	}
	return sqltypes.VarChar
}
