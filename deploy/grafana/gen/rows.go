package main

// rows are the dashboard's, in the order in which people ask.
func rows() []row {
	return []row{
		{title: "Is DAU fresh and complete?", panels: freshAndComplete()},
		{title: "Kafka", panels: kafka()},
		{title: "Aggregation", panels: aggregation()},
		{title: "Loads and tables", panels: loads()},
		{title: "Process", panels: process()},
		{title: "DAU itself, from StarRocks", collapsed: true, panels: dau()},
	}
}

func freshAndComplete() []panel {
	return []panel{
		{
			kind: number, title: "DAU is behind by", unit: "s", width: 5, runbook: "rollcalldelayed",
			description: "Now minus the time up to which every record is durable in StarRocks, the worst partition. An idle topic is fresh.",
			queries:     []query{{`max(rollcall_freshness_seconds{METRICS})`, "behind"}},
			steps:       []threshold{{300, "orange"}, {1800, "red"}},
		},
		{
			kind: number, title: "Complete up to", unit: "dateTimeAsIso", width: 5, runbook: "rollcalldelayed",
			description: "Every record up to this time is durable in StarRocks.",
			queries:     []query{{`min(rollcall_complete_until_timestamp_seconds{TOPICS}) * 1000`, "complete up to"}},
		},
		{
			kind: number, title: "Partitions nobody reads", unit: "short", width: 4, runbook: "rollcallpartitionsunowned",
			description: "Known to discovery and assigned to no worker. They are not part of freshness.",
			queries:     []query{{`sum(rollcall:partitions_unowned{METRICS})`, "unowned"}},
			steps:       []threshold{{1, "red"}},
		},
		{
			kind: number, title: "Offsets lost (range)", unit: "short", width: 5, runbook: "rollcalllostoffsets",
			description: "Offsets that were gone before they were read, in the time range shown. Their days are too low for good.",
			queries:     []query{{`sum(increase(rollcall_source_skipped_offsets_total{TOPICS}[$__range]))`, "lost"}},
			steps:       []threshold{{1, "red"}},
		},
		{
			kind: number, title: "Records unaccounted for", unit: "short", width: 5, runbook: "rollcallrecordsunaccounted",
			description: "Records read minus counted, late, future and bad ones. Always 0; anything else is a bug.",
			queries: []query{{`sum(abs(sum by (instance, topic, partition) (rollcall_source_records_total{TOPICS})` +
				` - sum by (instance, topic, partition) (rollcall_events_total{TOPICS})))`, "unaccounted"}},
			steps: []threshold{{1, "red"}},
		},
		{
			kind: graph, title: "Delay", unit: "s", width: 6, runbook: "rollcalldelayed",
			description: "How old the oldest record is that is not durable, per group. Falling means that it catches up.",
			queries:     []query{{`rollcall:freshness_seconds:max{METRICS}`, "{{group}} {{job}}"}},
		},
		{
			kind: graph, title: "Delay of the ten worst partitions", unit: "s", width: 6, runbook: "rollcallpartitionstuck",
			description: "Now minus complete-until of single partitions.",
			queries:     []query{{`topk(10, time() - min by (topic, partition) (rollcall_complete_until_timestamp_seconds{TOPICS}))`, "{{topic}}/{{partition}}"}},
		},
		{
			kind: graph, title: "Time to data loss", unit: "s", width: 12, runbook: "rollcalldatalossnear",
			description: "How long the oldest record that is not durable will still be in its topic, by retention.ms. Flat at the retention is well; empty: records stay for ever, or retention may not be read.",
			queries:     []query{{`min by (topic) (rollcall_time_to_data_loss_seconds{TOPICS})`, "{{topic}}"}, {`max by (topic) (rollcall_topic_retention_seconds{TOPICS})`, "retention of {{topic}}"}},
		},
		{
			kind: graph, title: "What becomes of records", unit: "ops", width: 12, stack: true, runbook: "rollcallbadrecords",
			description: "Records per second: counted; late (after ALLOWED_LATENESS); future and bad (to the dead-letter topic).",
			queries:     []query{{`sum by (outcome) (rate(rollcall_events_total{TOPICS}[$__rate_interval]))`, "{{outcome}}"}},
		},
		{
			kind: list, title: "Alerts that fire", unit: "short", width: 12, runbook: "alerts",
			description: "Alerts of deploy/prometheus/rules.yml. One row with 0 if none fires.",
			queries:     []query{{`count by (alertname, severity, group) (ALERTS{alertname=~"Rollcall.*", alertstate="firing"}) or vector(0)`, ""}},
		},
	}
}

func kafka() []panel {
	return []panel{
		{
			kind: graph, title: "Records read", unit: "ops", width: 8, runbook: "rollcallpartitionstuck",
			description: "Records per second that were applied, per topic.",
			queries:     []query{{`sum by (topic) (rate(rollcall_source_records_total{TOPICS}[$__rate_interval]))`, "{{topic}}"}},
		},
		{
			kind: graph, title: "Bytes read", unit: "Bps", width: 8, runbook: "rollcallpartitionstuck",
			description: "Keys and values of records read, uncompressed.",
			queries:     []query{{`sum by (instance) (rate(rollcall_source_bytes_total{METRICS}[$__rate_interval]))`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Lag", unit: "short", width: 8, runbook: "rollcallpartitionstuck",
			description: "Records between the position and the end that may be read. Alerts look at seconds and growth, not at this.",
			queries:     []query{{`sum by (topic) (rollcall:source_lag_records:max{TOPICS})`, "{{topic}}"}},
		},
		{
			kind: graph, title: "Partitions per worker", unit: "short", width: 8, stack: true, runbook: "rollcallnomembers",
			description: "Assigned partitions. Steps are rebalances.",
			queries:     []query{{`sum by (instance) (rollcall_source_assigned_partitions{METRICS})`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Paused partitions", unit: "short", width: 8, runbook: "rollcallbufferfull",
			description: "Assigned partitions that are not fetched, by reason: buffer and share (memory), queue (the owner has enough), " +
				"deadletters, restoring, position, retry, stopped (needs a human).",
			queries: []query{{`sum by (reason) (rollcall_source_paused{METRICS})`, "{{reason}}"}},
		},
		{
			kind: graph, title: "Offset commits", unit: "ops", width: 8, runbook: "rollcallcommitsfailing",
			description: "Commits per second and partition by result. They mirror the table; a failed one costs nothing.",
			queries:     []query{{`sum by (result) (rate(rollcall_source_commits_total{METRICS}[$__rate_interval]))`, "{{result}}"}},
		},
		{
			kind: graph, title: "Partitions as discovery sees them", unit: "short", width: 8, runbook: "rollcallpartitionsleaderless",
			description: "Known, leaderless, missing from the last answers, gone for good; assigned is per worker, here the greatest.",
			queries:     []query{{`max by (state) (rollcall_discovery_partitions{METRICS})`, "{{state}}"}},
		},
		{
			kind: graph, title: "Discovery rounds", unit: "ops", width: 8, runbook: "rollcalldiscoverybreakeropen",
			description: "Rounds per second by result; skipped: the breaker was open.",
			queries:     []query{{`sum by (result) (rate(rollcall_discovery_rounds_total{METRICS}[$__rate_interval]))`, "{{result}}"}},
		},
		{
			kind: graph, title: "Discovery breaker not closed", unit: "short", width: 4, runbook: "rollcalldiscoverybreakeropen",
			description: "Workers whose breaker is open or half open. Reading goes on meanwhile.",
			queries:     []query{{`sum by (state) (rollcall_discovery_breaker_state{METRICS, state!="closed"})`, "{{state}}"}},
		},
		{
			kind: graph, title: "Last good round", unit: "s", width: 4, runbook: "rollcalldiscoverystale",
			description: "Age of the last good discovery round.",
			queries:     []query{{`time() - max by (instance) (rollcall_discovery_last_success_timestamp_seconds{METRICS})`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Broker traffic", unit: "Bps", width: 12, runbook: "rollcallpartitionsleaderless",
			description: "Bytes per second that the consumer reads from each broker, on the wire.",
			queries:     []query{{`sum by (node_id) (rate(rollcall_kafka_read_bytes_total{METRICS}[$__rate_interval]))`, "broker {{node_id}}"}},
		},
		{
			kind: graph, title: "Broker connections made", unit: "short", width: 12, runbook: "rollcallpartitionsleaderless",
			description: "New connections per minute and broker. A broker that is away shows as a comb.",
			queries:     []query{{`sum by (node_id) (rate(rollcall_kafka_connects_total{METRICS}[$__rate_interval])) * 60`, "broker {{node_id}}"}},
		},
	}
}

func aggregation() []panel {
	return []panel{
		{
			kind: graph, title: "Keys in memory", unit: "short", width: 8, runbook: "rollcallkeysfolded",
			description: "Day x dimension keys that can still change, all partitions of a worker.",
			queries:     []query{{`sum by (instance) (rollcall_aggregate_keys{METRICS})`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Folded and saturated", unit: "ops", width: 8, runbook: "rollcallkeysfolded",
			description: "Events per second counted under __other__ (AGGREGATE_MAX_KEYS), and additions to a total that is full.",
			queries: []query{
				{`sum(rate(rollcall_aggregate_keys_folded_total{METRICS}[$__rate_interval]))`, "folded"},
				{`sum(rate(rollcall_aggregate_saturated_total{METRICS}[$__rate_interval]))`, "saturated"},
			},
		},
		{
			kind: graph, title: "Share of records not counted", unit: "percentunit", width: 8, runbook: "rollcallbadrecords",
			description: "Late, future and bad records of all records, over 15 minutes.",
			queries: []query{{`sum by (outcome) (rollcall:events:rate15m{TOPICS, outcome!="counted"})` +
				` / on () group_left () sum(rollcall:events:rate15m{TOPICS})`, "{{outcome}}"}},
		},
		{
			kind: graph, title: "Bad records by reason", unit: "ops", width: 8, stack: true, runbook: "rollcallbadrecords",
			description: "Confirmed by the dead-letter topic; without one, only counted and logged.",
			queries:     []query{{`sum by (reason) (rate(rollcall_deadletter_records_total{METRICS}[$__rate_interval]))`, "{{reason}}"}},
		},
		{
			kind: graph, title: "Dead letters refused", unit: "ops", width: 8, runbook: "rollcalldeadlettersrefused",
			description: "Attempts that the dead-letter topic refused or did not answer.",
			queries:     []query{{`sum by (instance) (rate(rollcall_deadletter_retries_total{METRICS}[$__rate_interval]))`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Events without a value", unit: "ops", width: 8, runbook: "rollcallbadrecords",
			description: "Counted events that contribute nothing to a measure since its field is absent, null or empty.",
			queries:     []query{{`sum by (measure) (rate(rollcall_events_without_value_total{METRICS}[$__rate_interval]))`, "{{measure}}"}},
		},
		{
			kind: graph, title: "Dimension values changed", unit: "ops", width: 8, runbook: "rollcallbadrecords",
			description: "Values cut at 255 bytes, or with invalid UTF-8 replaced.",
			queries:     []query{{`sum by (change) (rate(rollcall_dimension_values_changed_total{METRICS}[$__rate_interval]))`, "{{change}}"}},
		},
		{
			kind: graph, title: "Seal", unit: "s", width: 8, runbook: "rollcalldelayed",
			description: "How long a partition stands still to hand over its batch.",
			queries:     quantiles("rollcall_seal_duration_seconds"),
		},
		{
			kind: graph, title: "Overlapping histories", unit: "short", width: 8, runbook: "rollcalloverlap",
			description: "Partitions whose histories overlap in the table: records may count twice. Always 0.",
			queries:     []query{{`sum by (topic) (rollcall_checkpoint_overlap{TOPICS})`, "{{topic}}"}},
		},
	}
}

func loads() []panel {
	return []panel{
		{
			kind: graph, title: "Load attempts", unit: "ops", width: 8, stack: true, runbook: "rollcallloadsfailing",
			description: "Attempts per second by what StarRocks said: done, failed, refused, unknown (asked for, then sent again).",
			queries:     []query{{`sum by (status) (rate(rollcall_loads_total{METRICS}[$__rate_interval]))`, "{{status}}"}},
		},
		{
			kind: graph, title: "Load duration", unit: "s", width: 8, runbook: "rollcallloadsfailing",
			description: "Until the outcome of an attempt was known.",
			queries:     quantiles("rollcall_load_duration_seconds"),
		},
		{
			kind: graph, title: "Oldest batch without outcome", unit: "s", width: 8, runbook: "rollcallloadunfinished",
			description: "Age of the oldest batch that is not known to be durable. Near FLUSH_INTERVAL when all is well.",
			queries:     []query{{`max by (instance) (rollcall_load_oldest_unfinished_seconds{METRICS})`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Attempts repeated, by reason", unit: "ops", width: 12, stack: true, runbook: "rollcallloadsfailing",
			description: "Reasons as in the worker's log. too_many_versions, busy and throttled widen the flush interval by themselves.",
			queries:     []query{{`sum by (reason) (rate(rollcall_load_retries_total{METRICS}[$__rate_interval])) > 0 or vector(0)`, "{{reason}}"}},
		},
		{
			kind: graph, title: "Sink blocked", unit: "short", width: 6, runbook: "rollcallsinkblocked",
			description: "Workers whose loads do not get through. All reasons but failing need a human.",
			queries:     []query{{`sum by (reason) (rollcall_sink_blocked{METRICS})`, "{{reason}}"}},
		},
		{
			kind: graph, title: "Flush interval", unit: "s", width: 6, runbook: "rollcallloadsfailing",
			description: "Between the starts of two loads; wider than FLUSH_INTERVAL while StarRocks is overloaded.",
			queries:     []query{{`max by (instance) (rollcall_flush_interval_seconds{METRICS})`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Rows confirmed", unit: "ops", width: 8, runbook: "rollcallloadsfailing",
			description: "Rows per second that StarRocks confirmed: by its reply, or by the label's state.",
			queries:     []query{{`sum by (confirmed) (rate(rollcall_load_rows_total{METRICS}[$__rate_interval]))`, "{{confirmed}}"}},
		},
		{
			kind: graph, title: "Bytes loaded", unit: "Bps", width: 8, runbook: "rollcallloadsfailing",
			description: "Encoded bytes of confirmed loads.",
			queries:     []query{{`sum by (instance) (rate(rollcall_load_bytes_total{METRICS}[$__rate_interval]))`, "{{instance}}"}},
		},
		{
			kind: graph, title: "Label state checks", unit: "ops", width: 8, runbook: "rollcallloadsfailing",
			description: "Questions for a label's state, after an unknown outcome or a publish that takes long.",
			queries:     []query{{`sum by (state) (rate(rollcall_label_state_checks_total{METRICS}[$__rate_interval]))`, "{{state}}"}},
		},
		{
			kind: list, title: "Work on table and view", unit: "short", width: 12, runbook: "rollcalltablenotready",
			description: "Operations since the workers started, by result; unknown means that nobody answered and the table was read again.",
			queries:     []query{{`sum by (op, result) (rollcall_table_operations_total{METRICS}) > 0`, ""}},
		},
		{
			kind: graph, title: "Restore", unit: "s", width: 12, runbook: "rollcallpartitionnotstarted",
			description: "From the assignment of a partition to its first fetch.",
			queries:     quantiles("rollcall_restore_duration_seconds"),
		},
	}
}

func process() []panel {
	return []panel{
		{
			kind: graph, title: "CPU", unit: "short", width: 6, runbook: "rollcallrestarting",
			description: "Cores used.",
			queries:     []query{{`rate(process_cpu_seconds_total{METRICS}[$__rate_interval])` + ours, "{{instance}}"}},
		},
		{
			kind: graph, title: "Memory", unit: "bytes", width: 6, runbook: "rollcallbufferfull",
			description: "Resident memory, and of it what was read and is not durable yet; reading pauses at BUFFER_MAX_BYTES.",
			queries: []query{
				{`process_resident_memory_bytes{METRICS}` + ours, "{{instance}} resident"},
				{`rollcall_buffer_bytes{METRICS}`, "{{instance}} buffer"},
			},
		},
		{
			kind: graph, title: "Goroutines and files", unit: "short", width: 6, runbook: "rollcallrestarting",
			description: "One goroutine per partition and a handful of loops; both are flat.",
			queries: []query{
				{`go_goroutines{METRICS}` + ours, "{{instance}} goroutines"},
				{`process_open_fds{METRICS}` + ours, "{{instance}} open files"},
			},
		},
		{
			kind: graph, title: "Up for", unit: "s", width: 6, runbook: "rollcallrestarting",
			description: "Since the process started. A saw is a worker that keeps ending; its exit code says why.",
			queries:     []query{{`time() - process_start_time_seconds{METRICS}` + ours, "{{instance}}"}},
		},
	}
}

// ours keeps the processes that are workers.
const ours = ` and on (namespace, job, instance) rollcall_source_assigned_partitions{METRICS}`

func dau() []panel {
	return []panel{
		{
			kind: list, title: "DAU, last 30 days", unit: "short", width: 12, runbook: "numbers-look-wrong",
			description: "Exact distinct users per day over all dimensions, for a measure named uv (the default). Bitmaps unite over sources and " +
				"dimensions, so this reads the table.",
			sql: "SELECT dt, BITMAP_UNION_COUNT(uv) AS uv FROM ${table} WHERE dt >= DATE_SUB(CURDATE(), INTERVAL 30 DAY) GROUP BY dt ORDER BY dt DESC",
		},
		{
			kind: list, title: "Events, last 30 days", unit: "short", width: 12, runbook: "numbers-look-wrong",
			description: "Events per day, for a measure named pv (the default), from the view; the table itself has one total per source.",
			sql:         "SELECT dt, SUM(pv) AS pv FROM ${table}_view WHERE dt >= DATE_SUB(CURDATE(), INTERVAL 30 DAY) GROUP BY dt ORDER BY dt DESC",
		},
	}
}

func quantiles(metric string) []query {
	q := func(p, name string) query {
		return query{`histogram_quantile(` + p + `, sum by (le) (rate(` + metric + `_bucket{METRICS}[$__range])))`, name}
	}
	return []query{q("0.5", "median"), q("0.99", "99 %")}
}
