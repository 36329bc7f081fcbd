package starrocks

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollcall/pkg/aggregate"
)

// The columns that are ours in every table.
const (
	columnDay       = "dt"
	columnSource    = "rollcall_source"
	columnNext      = "rollcall_next_offset"
	columnLastEvent = "rollcall_last_event_ms"
)

// maxName is below every limit of StarRocks (1024 for tables and columns, 256 for databases; fe FeNameFormat.java).
const maxName = 255

// databaseName is StarRocks' own rule (fe FeNameFormat.DB_NAME_REGEX).
func databaseName() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[a-zA-Z]|_[a-zA-Z0-9])[\w\-~!@#$%^&<>=+]{0,253}$`)
}

// quote makes an identifier of any name.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func quoteAll(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = quote(n)
	}
	return strings.Join(q, ", ")
}

// CheckNames says everything that is wrong with the names of a table; nil means that StarRocks takes them, reserved words included
// (every identifier is quoted). An empty or "none" view is no view.
func CheckNames(database, table, view string, dims []aggregate.Dimension, measures []aggregate.Measure) error {
	var errs []error
	if !databaseName().MatchString(database) {
		errs = append(errs, fmt.Errorf("database %q: want a letter, then letters, digits and underscores", database))
	}
	errs = append(errs, checkName("table", table))
	if view != "" && view != NoView {
		errs = append(errs, checkName("view", view))
		if view == table {
			errs = append(errs, fmt.Errorf("view %q: has the name of the table", view))
		}
	}
	// Column names are case-insensitive in StarRocks.
	seen := map[string]string{columnDay: "the day"}
	column := func(kind, name string) {
		errs = append(errs, checkColumn(kind, name))
		key := strings.ToLower(name)
		if other, ok := seen[key]; ok {
			errs = append(errs, fmt.Errorf("%s %q: the name is taken by %s", kind, name, other))
		}
		seen[key] = fmt.Sprintf("%s %q", kind, name)
	}
	for _, d := range dims {
		column("dimension", d.Name)
	}
	for _, m := range measures {
		column("measure", m.Name)
		if _, _, ok := measureColumn(m.Kind); !ok {
			errs = append(errs, fmt.Errorf("measure %q: unknown kind %d", m.Name, m.Kind))
		}
	}
	if len(measures) == 0 {
		errs = append(errs, errors.New("no measure"))
	}
	return errors.Join(errs...)
}

func checkName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: empty name", kind)
	case len(name) > maxName:
		return fmt.Errorf("%s %q: longer than %d bytes", kind, name, maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%s %q: not UTF-8", kind, name)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%s %q: space at an end", kind, name)
	}
	for _, r := range name {
		// A slash would end the path segment of a load's URL, a back-tick is refused rather than trusted to survive every parser it
		// meets (SQL, the columns header, SHOW output).
		if r == '`' || r == '/' || r == '\\' || r == '"' || r == '\'' || unicode.IsControl(r) {
			return fmt.Errorf("%s %q: %q is not allowed", kind, name, r)
		}
	}
	return nil
}

func checkColumn(kind, name string) error {
	if err := checkName(kind, name); err != nil {
		return err
	}
	// fe FeNameFormat: SHARED_NOTHING_COLUMN_NAME_REGEX, FORBIDDEN_COLUMN_NAMES, SchemaChangeHandler.SHADOW_NAME_PREFIX.
	lower := strings.ToLower(name)
	switch {
	case strings.ContainsAny(name, "=<>!*"):
		return fmt.Errorf("%s %q: = < > ! * are not allowed in a column", kind, name)
	case strings.HasPrefix(lower, "rollcall_"), strings.HasPrefix(lower, "__"):
		return fmt.Errorf("%s %q: names that begin with rollcall_ or __ are taken", kind, name)
	}
	return nil
}
