package starrockstest

import "fmt"

// MySQL error codes as StarRocks uses them. StarRocks: fe com/starrocks/common/ErrorCode.java.
const (
	errCodeAnalysis     = 1064
	errCodeUnknownDB    = 1049
	errCodeDBExists     = 1007
	errCodeTableExists  = 1050
	errCodeNoDB         = 1046
	errCodeUnknownTable = 5502
	errCodeAccess       = 5203
)

// sqlError is an error with the code and state a client sees.
type sqlError struct {
	code  int
	state string
	msg   string
}

func (e *sqlError) Error() string { return e.msg }

func sqlErr(code int, format string, args ...any) *sqlError {
	state := "HY000"
	switch code {
	case errCodeUnknownDB, errCodeAccess:
		state = "42000"
	case errCodeTableExists:
		state = "42S01"
	case errCodeUnknownTable:
		state = "42S02"
	case errCodeNoDB:
		state = "3D000"
	}
	return &sqlError{code, state, fmt.Sprintf(format, args...)}
}

var errNoDatabase = sqlErr(errCodeNoDB, "No database selected")

func unknownDatabase(db string) *sqlError {
	return sqlErr(errCodeUnknownDB, "Unknown database '%s'", db)
}

func accessDenied(p Privilege, on string) string {
	return fmt.Sprintf("Access denied; you need (at least one of) the %s privilege(s) on %s for this operation.", p, on)
}

// MsgTooManyVersions and the others are what a StarRocks says when it cannot take a load now; see Fail.
const (
	MsgTooManyVersions = "Failed to load data into tablet 10106, because of too many versions, current/limit: 1002/1000. You can reduce the loading job concurrency, or increase loading data batch size. If you are loading data with Routine Load, you can increase FE configs routine_load_task_consume_second and max_routine_load_batch_size,"
	MsgMemory          = "Memory of process exceed limit. Start execute plan fragment. Used: 9663676416, Limit: 9126805504. Mem usage has exceed the limit of BE"
	MsgRunningTxns     = "current running txns on db 10005 is 1000, larger than limit 1000"
	MsgCommitUnknown   = "Commit transaction fail cause: THRIFT_EAGAIN (timed out), Transaction status unknown, you can retry with same label."
	MsgReplicas        = "Failed to commit txn 1009. Tablet [10106] success replica num 0 is less then quorum replica num 1 while error backends 10001"
	MsgFilteredRows    = "too many filtered rows"
	MsgNoBackend       = "class com.starrocks.common.DdlException: No backend alive."
	MsgUpdatedOften    = "The tablet write operation update metadata take a long time. Meta of table is updated frequently. You can retry the query later"
)
