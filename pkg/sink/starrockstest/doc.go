// Package starrockstest is a stand-in StarRocks for tests and for the demo. It is not StarRocks: it is a state machine
// of its own that answers the parts of the protocols the worker, the view and people who look at the demo use, as the
// server's source and documentation say, and refuses everything else by name. It shares no code with the worker.
// Nothing here was compared with a live cluster; StarRocks' own Java client (starrocks-stream-load-sdk 1.0: plain loads,
// transactions with one and with two phases, through a follower) and the mariadb client do agree with it (sdk_test.go).
//
//	c := starrockstest.New(starrockstest.Config{})       // inert
//	if err := c.Start(); err != nil { … }                // ephemeral ports, user root, empty password
//	defer c.Close()                                      // joins every goroutine
//	err := c.Exec("CREATE DATABASE dau", "CREATE TABLE dau.t (…) AGGREGATE KEY(…) …")
//	// settings of the client under test: c.FEURLs(), c.MySQLAddrs()
//	rule := c.Inject(starrockstest.Fault{
//		At: starrockstest.AtCommit, Label: "^w-", Skip: 9, Times: starrockstest.Forever,
//		Do: []starrockstest.Action{starrockstest.Sleep(time.Second), starrockstest.Fail(starrockstest.MsgTooManyVersions)},
//	})
//	// … run the client …
//	rows, err := c.Rows("dau", "t")                      // merged rows; bitmaps as []uint64
//	_, out, err := c.Query("SELECT SUM(pv) FROM dau.t")  // any statement, without faults
//	c.Loads(); c.Statements(); c.LabelState("dau", "w-9"); rule.Hits()
//
// In a testing/synctest bubble set Config.Listen to a virtual network's Listen; every delay is then virtual. Rules,
// control and inspection may be used from any goroutine at any time. Inject panics on a rule that could never strike.
//
// # Stream load
//
//   - FE listeners are bound to localhost and the BE to 127.0.0.1, because a redirect within one host name hides lost
//     credentials (net/http).
//   - FE: answers from the header block and never sends 100 Continue. In order: 401 without or with wrong credentials
//     (an Authorization header it cannot parse ends the connection: starrocks#47636), FAILED without Expect on
//     HTTP/1.1, 401 without INSERT, FAILED without a live BE, else 307 to the BE over http with path and query.
//     LoadAction.java, RestBaseAction.java.
//   - FE connections close after each answer; with Config.FEKeepAlive they stay, Expect is not demanded and what is
//     sent of a body is parsed as a request and answered 401 (starrocks#1467, #52516).
//   - BE: the label is taken and the load planned in the header phase; errors of that phase are answered with 200 and
//     JSON before the body is asked for. A body shorter than Content-Length fails; a client that leaves before the body
//     is complete leaves an ABORTED label, one that leaves later does not stop the commit. stream_load.cpp.
//   - Headers: label, format, columns, where, column_separator, row_delimiter, skip_header, trim_space, enclose,
//     strict_mode, max_filter_ratio, timeout, jsonpaths ($.a.b only), json_root, strip_outer_array, ignore_json_size,
//     compression or Content-Encoding (gzip, zstd, lz4_frame, bzip2, deflate; none of them with Config.NoCompression),
//     partial_update (refused except on PRIMARY KEY tables). partitions, merge_condition, envelope, escape are refused; other headers are ignored.
//   - Rows: JSON array, object or a sequence of objects, and CSV. A value that does not convert filters its row in
//     strict mode and is NULL otherwise; a mapped value that fails (base64_to_bitmap of rubbish) is NULL in either mode;
//     NULL into NOT NULL filters the row; a column that is not mentioned takes its default, or the plan fails. Source
//     columns that are not the table's are VARCHAR of Config.MaxValueBytes. FileScanner, json_scanner.cpp.
//   - More than max_filter_ratio filtered: "too many filtered rows". Nothing loaded: "all partitions have no load
//     data". ErrorURL is served by the BE.
//   - Reply: the key order and indentation of StreamLoadContext::to_json; Label Already Exists with ExistingJobStatus
//     RUNNING (PREPARE, PREPARED) or FINISHED (COMMITTED, VISIBLE); counters are zero unless the rows were computed.
//     The Content-Type is libevent's text/html unless Config.BEContentType says otherwise (not confirmed).
//
// # Transactions
//
//   - Labels per database; ids ascend; an ABORTED label is free. PREPARE, PREPARED, COMMITTED, VISIBLE, ABORTED.
//     Finished ones are forgotten after Config.LabelKeep or beyond Config.LabelKeepNum. DatabaseTransactionMgr.java.
//   - A commit is published after Config.PublishDelay of its partitions, in commit order within a partition and in no
//     order between partitions; all its rows appear at once. The reply waits Config.PublishWait (and never beyond the
//     load's timeout) and says Publish Timeout then.
//   - PREPARE ends by the timeout header ("timeout by txn manager", the text is not confirmed), PREPARED by
//     Config.PreparedTimeout. A timeout while a commit hangs makes the commit fail.
//   - /api/transaction/{begin,load,prepare,commit,rollback} of one table: leader first, then the BE while it holds the
//     context, then the FE; status words and key order of transaction_stream_load.cpp; any error rolls back. Multi-table
//     transactions, parallel channels and merge commit are missing.
//   - get_load_state is answered by the leader (followers 307): the newest transaction of the label, UNKNOWN without.
//     _cancel aborts. GetStreamLoadState.java.
//
// # Tables
//
//   - AGGREGATE KEY with SUM, MAX, MIN, REPLACE, REPLACE_IF_NOT_NULL, BITMAP_UNION and HLL_UNION (an exact union of
//     hashes, not a sketch); DUPLICATE, UNIQUE and PRIMARY KEY. BIGINT wraps. DECIMAL columns can be declared, not loaded.
//   - Bitmaps: all codes of bitmap_value_detail.h, the native forms 12 and 13 included, with bounds checks; written as
//     codes 0 to 4.
//   - Partitions by date_trunc, by value, or by RANGE (a row outside is filtered); automatic ones are made at the commit,
//     at most Config.MaxNewPartitions per load; partition_live_number every Config.TTLInterval.
//   - ALTER TABLE ADD/DROP/MODIFY COLUMN are jobs (PENDING, WAITING_TXN behind older loads, RUNNING, FINISHED or
//     CANCELLED), one per table; see Config.AlterDuration and ScriptAlter.
//
// # SQL
//
//   - mysql_native_password, text and prepared statements, several FEs each with its own lag (LagFE, FreezeFE).
//   - SELECT from one table, view or derived table with WHERE, GROUP BY, HAVING, ORDER BY, LIMIT; no joins, unions or
//     other subqueries. SUM over a MAX column sums rows merged by the full key. CAST of what does not fit is NULL.
//   - SHOW CREATE VIEW prints the SELECT with every name qualified and quoted, as the server does, not as typed.
//   - CREATE/DROP DATABASE, TABLE, VIEW; ALTER VIEW; TRUNCATE; INSERT … VALUES / SELECT; DESC and SHOW for tables, views,
//     partitions, variables, alter jobs and transactions; information_schema.{tables_config, columns, tables, views,
//     schemata, loads}. Errors carry the codes of ErrorCode.java (5502 and 5203 are not confirmed for every version).
package starrockstest
