package starrocks

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// permanentError marks an error that time does not mend: somebody has to change something.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err, from Table, DB or Client, asks for somebody to change something. What is not classified is not
// permanent and worth another try.
func IsPermanent(err error) bool {
	var p *permanentError
	var d *Difference
	return errors.As(err, &p) || errors.As(err, &d)
}

// Difference kinds; they are label values and never change.
const (
	// DiffMissingTable: the table does not exist and may not be created (ModeVerify).
	DiffMissingTable = "missing_table"
	// DiffModel: the table is not an AGGREGATE KEY table.
	DiffModel = "key_model"
	// DiffKeys: the key columns or their order differ.
	DiffKeys = "keys"
	// DiffMissing: a column is missing.
	DiffMissing = "missing_column"
	// DiffType: a column's type is another or too narrow.
	DiffType = "type"
	// DiffAggregate: a column's aggregate function is another.
	DiffAggregate = "aggregate"
	// DiffNull: a column may be NULL and must not, or the other way round.
	DiffNull = "nullability"
	// DiffExtra: a column that is not ours and that a load without it cannot fill.
	DiffExtra = "extra_column"
	// DiffView: the view is missing or has other columns.
	DiffView = "view"
)

// DifferenceItem is one difference between the table as expected and as found.
type DifferenceItem struct {
	// Kind is one of the Diff constants.
	Kind string
	// Column is empty where the whole table is meant.
	Column      string
	Want, Found string
}

func (i DifferenceItem) String() string {
	var b strings.Builder
	if i.Column != "" {
		fmt.Fprintf(&b, "column %s: ", i.Column)
	}
	fmt.Fprintf(&b, "%s: want %s, found %s", i.Kind, i.Want, i.Found)
	return b.String()
}

// Difference says that the table (or its view) is not as expected. It is permanent: the table has to be mended.
type Difference struct {
	// Table is the qualified name.
	Table string
	Items []DifferenceItem
}

func (d *Difference) Error() string {
	parts := make([]string, len(d.Items))
	for i, item := range d.Items {
		parts[i] = item.String()
	}
	return fmt.Sprintf("table %s is not as expected: %s", d.Table, strings.Join(parts, "; "))
}

func (d *Difference) onlyView() bool {
	return !slices.ContainsFunc(d.Items, func(i DifferenceItem) bool { return i.Kind != DiffView })
}

// isDenied reports whether the server refused for want of rights. StarRocks: fe ErrorCode.java (1044, 1045, 1142, 1227, 5203), and
// 1064 with text in older releases.
func isDenied(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Number {
	case 1044, 1045, 1142, 1143, 1227, 5203:
		return true
	}
	return strings.Contains(strings.ToLower(e.Message), "access denied")
}

// isUnknownObject reports whether a database or table does not exist. StarRocks: fe ErrorCode.java (1049, 1051, 1146, 5501, 5502),
// and 1064 with text from the analyzer.
func isUnknownObject(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Number {
	case 1049, 1051, 1146, 5501, 5502:
		return true
	}
	text := strings.ToLower(e.Message)
	return strings.Contains(text, "unknown table") || strings.Contains(text, "unknown database") ||
		strings.Contains(text, "does not exist") || strings.Contains(text, "doesn't exist")
}

// isConnection reports whether err says that there was no server to talk to in time (a context's deadline is a net.Error too), rather
// than that one refused.
func isConnection(err error) bool {
	var e *mysql.MySQLError
	if err == nil || errors.As(err, &e) {
		return false
	}
	var n net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &n) || errors.Is(err, mysql.ErrMalformPkt) ||
		errors.Is(err, mysql.ErrPktSync)
}

// isAnswer reports whether the server itself answered with an error; everything else leaves a statement's outcome unknown.
func isAnswer(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	// A create that timed out on the server may still finish (fe: "fail to create tablet: timed out").
	text := strings.ToLower(e.Message)
	return !strings.Contains(text, "timed out") && !strings.Contains(text, "timeout")
}

// classifyStatement wraps a failed statement with what it was and whether trying again can help.
func classifyStatement(what string, err error) error {
	wrapped := fmt.Errorf("%s: %w", what, err)
	if isDenied(err) {
		return &permanentError{wrapped}
	}
	return wrapped
}
