package starrockstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sortedIDs[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }

// informationSchema answers the tables that clients verify with. StarRocks: docs/en/reference/information_schema.
func (e *engine) informationSchema(name string) (*relation, error) {
	switch strings.ToLower(name) {
	case "tables_config":
		return e.infoTablesConfig(), nil
	case "columns":
		return e.infoColumns(), nil
	case "tables":
		return e.infoTables(), nil
	case "views":
		return e.infoViews(), nil
	case "schemata":
		r := relationOf("CATALOG_NAME", "SCHEMA_NAME", "DEFAULT_CHARACTER_SET_NAME", "DEFAULT_COLLATION_NAME")
		for _, n := range append(sortedNames(e.dbs), "information_schema") {
			r.rows = append(r.rows, []any{"default_catalog", n, "utf8", "utf8_general_ci"})
		}
		return r, nil
	case "loads":
		return e.infoLoads(), nil
	case "load_tracking_logs":
		return relationOf("ID:n", "JOB_ID:n", "LABEL", "DATABASE_NAME", "TRACKING_LOG", "TYPE"), nil
	case "session_variables", "global_variables":
		return variables(&session{version: e.cfg.Version}), nil
	}
	return nil, sqlErr(errCodeUnknownTable, "Unknown table 'information_schema.%s' (or the stand-in lacks it)", name)
}

func (e *engine) eachTable(f func(d *database, t *table)) {
	for _, dn := range sortedNames(e.dbs) {
		for _, tn := range sortedNames(e.dbs[dn].tables) {
			f(e.dbs[dn], e.dbs[dn].tables[tn])
		}
	}
}

func (e *engine) infoTablesConfig() *relation {
	r := relationOf("TABLE_SCHEMA", "TABLE_NAME", "TABLE_ENGINE", "TABLE_MODEL", "PRIMARY_KEY", "PARTITION_KEY", "DISTRIBUTE_KEY",
		"DISTRIBUTE_TYPE", "DISTRIBUTE_BUCKET:n", "SORT_KEY", "PROPERTIES", "TABLE_ID:n")
	e.eachTable(func(d *database, t *table) {
		primary := ""
		if t.model == modelPrimary || t.model == modelUnique {
			primary = quoteNames(t.keys)
		}
		dist := "HASH"
		if t.random {
			dist = "RANDOM"
		}
		var props []string
		for _, kv := range t.props {
			props = append(props, fmt.Sprintf("%q:%q", kv[0], kv[1]))
		}
		part := quoteNames(t.part.columns)
		if t.part.unit != "" {
			part = fmt.Sprintf("date_trunc('%s', %s)", t.part.unit, t.part.columns[0])
		}
		r.rows = append(r.rows, []any{
			d.name, t.name, "OLAP", string(t.model), primary, part, quoteNames(t.distCols), dist, int64(t.buckets),
			quoteNames(t.keys), "{" + strings.Join(props, ",") + "}", t.id,
		})
	})
	return r
}

// infoColumns: COLUMN_KEY is the first letters of the table type on key columns and empty on values; the aggregate
// function is not here. StarRocks: FrontendServiceImpl.setColumnDesc.
func (e *engine) infoColumns() *relation {
	r := relationOf("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "ORDINAL_POSITION:n", "COLUMN_DEFAULT", "IS_NULLABLE",
		"DATA_TYPE", "CHARACTER_MAXIMUM_LENGTH:n", "NUMERIC_PRECISION:n", "NUMERIC_SCALE:n", "COLUMN_TYPE", "COLUMN_KEY", "EXTRA",
		"COLUMN_COMMENT", "COLUMN_SIZE:n", "DECIMAL_DIGITS:n")
	e.eachTable(func(d *database, t *table) {
		for i, c := range t.cols {
			key := ""
			if c.key {
				key = string(t.model)[:3]
			}
			null := "NO"
			if c.nullable {
				null = "YES"
			}
			def, length := any(nil), any(nil)
			if c.def != nil {
				def = *c.def
			}
			if c.typ.isString() {
				length = int64(c.typ.length)
			}
			dataType := string(c.typ.kind)
			if c.typ.kind == kindBoolean {
				dataType = "tinyint"
			}
			if c.typ.kind == kindLargeint {
				dataType = "bigint unsigned"
			}
			extra := ""
			if c.auto {
				extra = "auto_increment"
			}
			r.rows = append(r.rows, []any{
				"def", d.name, t.name, c.name, int64(i + 1), def, null, dataType, length, nil, nil, c.typ.String(), key, extra,
				c.comment, length, nil,
			})
		}
	})
	return r
}

func (e *engine) infoTables() *relation {
	r := relationOf("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "TABLE_TYPE", "ENGINE", "VERSION:n", "TABLE_ROWS:n", "TABLE_COMMENT")
	for _, dn := range sortedNames(e.dbs) {
		d := e.dbs[dn]
		for _, tn := range sortedNames(d.tables) {
			n := 0
			for _, p := range d.tables[tn].partitions {
				n += len(p.rows)
			}
			r.rows = append(r.rows, []any{"def", dn, tn, "BASE TABLE", "StarRocks", nil, int64(n), d.tables[tn].comment})
		}
		for _, vn := range sortedNames(d.views) {
			r.rows = append(r.rows, []any{"def", dn, vn, "VIEW", "", nil, nil, d.views[vn].comment})
		}
	}
	return r
}

func (e *engine) infoViews() *relation {
	r := relationOf("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "VIEW_DEFINITION", "CHECK_OPTION", "IS_UPDATABLE", "DEFINER",
		"SECURITY_TYPE", "CHARACTER_SET_CLIENT", "COLLATION_CONNECTION")
	for _, dn := range sortedNames(e.dbs) {
		for _, vn := range sortedNames(e.dbs[dn].views) {
			r.rows = append(r.rows, []any{"def", dn, vn, e.dbs[dn].views[vn].text, "NONE", "NO", nil, nil, "utf8", "utf8_general_ci"})
		}
	}
	return r
}

// infoLoads speaks another vocabulary than get_load_state: COMMITED with one T, FINISHED, CANCELLED.
func (e *engine) infoLoads() *relation {
	r := relationOf("ID:n", "LABEL", "DB_NAME", "TABLE_NAME", "USER", "STATE", "TYPE", "SINK_ROWS:n", "CREATE_TIME", "LOAD_COMMIT_TIME",
		"LOAD_FINISH_TIME", "ERROR_MSG", "TRACKING_SQL")
	state := map[TxnState]string{
		StatePrepare: "LOADING", StatePrepared: "PREPARED", StateCommitted: "COMMITED", StateVisible: "FINISHED", StateAborted: "CANCELLED",
	}
	for _, id := range sortedIDs(e.txns) {
		t := e.txns[id]
		rows, tab := int64(0), ""
		for _, l := range e.loads {
			if l.TxnID == t.id {
				rows, tab = rows+int64(l.Loaded), l.Table
			}
		}
		r.rows = append(r.rows, []any{
			t.id, t.label, t.db, tab, t.user, state[t.state], "STREAM", rows, timeOrNull(t.begun), timeOrNull(t.committed),
			timeOrNull(t.ended), t.reason, "",
		})
	}
	return r
}

func variables(s *session) *relation {
	r := relationOf("Variable_name", "Value")
	for _, kv := range sessionVariables(s) {
		r.rows = append(r.rows, []any{kv[0], kv[1]})
	}
	return r
}

// sessionVariables are those that clients read when they connect.
func sessionVariables(s *session) [][2]string {
	return [][2]string{
		{"auto_increment_increment", "1"},
		{"autocommit", "true"},
		{"character_set_client", "utf8"},
		{"character_set_connection", "utf8"},
		{"character_set_results", "utf8"},
		{"character_set_server", "utf8"},
		{"collation_connection", "utf8_general_ci"},
		{"collation_database", "utf8_general_ci"},
		{"collation_server", "utf8_general_ci"},
		{"init_connect", ""},
		{"interactive_timeout", "3600"},
		{"license", "Apache License 2.0"},
		{"lower_case_table_names", "0"},
		{"max_allowed_packet", "33554432"},
		{"net_buffer_length", "16384"},
		{"net_write_timeout", "60"},
		{"performance_schema", "false"},
		{"query_cache_size", "1048576"},
		{"query_cache_type", "0"},
		{"query_timeout", "300"},
		{"sql_mode", "ONLY_FULL_GROUP_BY"},
		{"sql_safe_updates", "0"},
		{"system_time_zone", "UTC"},
		{"time_zone", "UTC"},
		{"transaction_isolation", "READ-COMMITTED"},
		{"tx_isolation", "READ-COMMITTED"},
		{"tx_read_only", "OFF"},
		{"transaction_read_only", "OFF"},
		{"version", mysqlVersion},
		{"version_comment", "StarRocks version " + s.version + " (stand-in)"},
		{"wait_timeout", "28800"},
	}
}

// sessionVariable is @@name; an unknown one is NULL.
func sessionVariable(name string, s *session) any {
	if s == nil {
		return nil
	}
	for _, kv := range sessionVariables(s) {
		if kv[0] == name {
			return kv[1]
		}
	}
	return nil
}
