package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// check looks at settings together. It leaves alone what could not be parsed:
// one mistake is one problem.
func (l *loader) check() {
	l.cfg.Worker = workerName(l.env["HOSTNAME"])
	l.checkKafka()
	l.checkStart()
	l.checkTLS("KAFKA_TLS_", l.cfg.KafkaTLS)
	l.checkTLS("STARROCKS_TLS_", l.cfg.StarRocksTLS)
	l.checkSASL()
	l.checkDiscovery()
	l.checkColumns()
	l.checkStarRocks()
	l.checkLoads()
	l.checkDeadLetter()
}

// fine reports whether all the named settings were read without a problem.
func (l *loader) fine(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return l.failed[name] })
}

// given reports whether a setting comes from outside, not from its default.
func (l *loader) given(name string) bool {
	return l.cfg.raw[name].source != FromDefault
}

// deploymentPod matches the names a Deployment gives its pods:
// <deployment>-<hash of the template>-<five random letters>.
var deploymentPod = regexp.MustCompile(`-[a-z0-9]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

func (l *loader) checkKafka() {
	k := l.cfg.Kafka
	if k.InstanceID != "" && deploymentPod.MatchString(l.env["HOSTNAME"]) {
		l.warn("KAFKA_INSTANCE_ID is set and this looks like a pod of a Deployment, whose replicas would share it and throw each other out of the group. Remove it, or use a StatefulSet and give each pod its own.")
	}
	if k.GroupProtocol == "consumer" && l.given("KAFKA_SESSION_TIMEOUT") {
		l.warn("KAFKA_SESSION_TIMEOUT has no effect with KAFKA_GROUP_PROTOCOL=consumer: the brokers decide (group.consumer.session.timeout.ms).")
	}
	if l.given("EVENT_TIME_FORMAT") && l.cfg.Event.TimeField == "" {
		l.warn("EVENT_TIME_FORMAT has no effect without EVENT_TIME_FIELD: the time of the Kafka record counts.")
	}
	for _, name := range k.Topics.Names {
		if l.fine("KAFKA_TOPICS_EXCLUDE") && k.TopicsExclude.Match(name) {
			l.problem("KAFKA_TOPICS_EXCLUDE", Problem{Found: "excludes " + quote(name) + ", which KAFKA_TOPICS names", Allowed: "topics that a pattern in KAFKA_TOPICS matches", Remedy: "remove it from one of the two"})
		}
	}
}

// consumed reports whether the worker would read the topic.
func (l *loader) consumed(topic string) bool {
	return l.cfg.Kafka.Topics.Match(topic) && !l.cfg.Kafka.TopicsExclude.Match(topic)
}

func (l *loader) checkStart() {
	start, stop := l.cfg.Kafka.Start, l.cfg.Kafka.Stop
	if l.fine("KAFKA_START", "KAFKA_TOPICS", "KAFKA_TOPICS_EXCLUDE") {
		for _, topic := range sortedKeys(start.Offsets) {
			if !l.consumed(topic) {
				l.problem("KAFKA_START", Problem{Found: "has offsets of " + quote(topic) + ", which is not read", Allowed: "topics of KAFKA_TOPICS", Remedy: "correct the topic or add it to KAFKA_TOPICS"})
			}
		}
	}
	if !l.fine("KAFKA_START", "KAFKA_STOP") {
		return
	}
	switch {
	case start.Mode == ModeTimestamp && stop.Mode == ModeTimestamp && !start.At.Before(stop.At):
		l.problem("KAFKA_STOP", Problem{Found: "is not after KAFKA_START", Allowed: "a later time", Remedy: "exchange them or move one"})
	case start.Mode == ModeLatest && stop.Mode == ModeLatest:
		l.warn("KAFKA_START=latest with KAFKA_STOP=latest reads nothing on a first start.")
	}
}

func (l *loader) checkSASL() {
	const prefix = "KAFKA_SASL_"
	if !l.fine(prefix+"MECHANISM", prefix+"PASSWORD", prefix+"PASSWORD_FILE", prefix+"TOKEN", prefix+"TOKEN_FILE",
		prefix+"AWS_SECRET_ACCESS_KEY", prefix+"AWS_SECRET_ACCESS_KEY_FILE", prefix+"AWS_SESSION_TOKEN", prefix+"AWS_SESSION_TOKEN_FILE") {
		return
	}
	s := l.cfg.KafkaSASL
	need := map[string][]string{
		PLAIN:       {"USERNAME", "PASSWORD"},
		SCRAM256:    {"USERNAME", "PASSWORD"},
		SCRAM512:    {"USERNAME", "PASSWORD"},
		OAUTHBEARER: {"TOKEN"},
	}[s.Mechanism]
	for _, name := range need {
		if !l.given(prefix + name) {
			l.problem(prefix+name, Problem{Found: "not set", Allowed: "text", Remedy: "set it; KAFKA_SASL_MECHANISM=" + s.Mechanism + " needs it"})
		}
	}
	if s.Mechanism == AWSMSKIAM {
		l.checkPair(prefix+"AWS_ACCESS_KEY_ID", prefix+"AWS_SECRET_ACCESS_KEY", "set both, or neither to use the AWS credential chain")
	}
	l.checkUnusedSASL(need)
	if s.Mechanism == PLAIN && l.fine("KAFKA_TLS_ENABLED") && !l.cfg.KafkaTLS.Enabled {
		l.warn("KAFKA_SASL_MECHANISM=PLAIN without KAFKA_TLS_ENABLED sends the password in the clear.")
	}
}

// checkUnusedSASL refuses credentials the mechanism would not use: the worker
// would connect as somebody else than was meant, or as nobody.
func (l *loader) checkUnusedSASL(need []string) {
	s := l.cfg.KafkaSASL
	for _, f := range fields(l.cfg) {
		name, ok := strings.CutPrefix(f.Name, "KAFKA_SASL_")
		if !ok || name == "MECHANISM" || !l.given(f.Name) {
			continue
		}
		if slices.Contains(need, name) || (s.Mechanism == AWSMSKIAM && strings.HasPrefix(name, "AWS_")) {
			continue
		}
		if s.Mechanism == "" {
			l.problem(f.Name, Problem{Found: "set, but KAFKA_SASL_MECHANISM is not", Remedy: "set the mechanism or remove it"})
			continue
		}
		l.warn("%s has no effect with KAFKA_SASL_MECHANISM=%s.", f.Name, s.Mechanism)
	}
}

// checkPair wants both settings or neither.
func (l *loader) checkPair(a, b, remedy string) {
	if l.given(a) == l.given(b) {
		return
	}
	if l.given(a) {
		a, b = b, a
	}
	l.problem(a, Problem{Found: "not set, but " + b + " is", Allowed: "both or neither", Remedy: remedy})
}

func (l *loader) checkDiscovery() {
	d := l.cfg.Discovery
	if l.fine("DISCOVERY_TIMEOUT", "DISCOVERY_REQUEST_TIMEOUT") && d.RequestTimeout >= d.Timeout {
		l.problem("DISCOVERY_REQUEST_TIMEOUT", Problem{
			Found:   fmt.Sprintf("%s is not below DISCOVERY_TIMEOUT (%s)", d.RequestTimeout, d.Timeout),
			Allowed: "less than one round", Remedy: "leave a round time for a second broker; a third of DISCOVERY_TIMEOUT is usual",
		})
	}
	if l.fine("DISCOVERY_TIMEOUT", "DISCOVERY_INTERVAL") && d.Timeout > d.Interval {
		l.warn("DISCOVERY_TIMEOUT (%s) is longer than DISCOVERY_INTERVAL (%s): slow rounds follow each other without a pause.", d.Timeout, d.Interval)
	}
}

// checkColumns wants every column name once and every path usable.
func (l *loader) checkColumns() {
	if path := l.cfg.Event.TimeField; path != "" {
		if reason := checkPath(path); reason != "" {
			l.problem("EVENT_TIME_FIELD", Problem{Found: quote(path) + " " + reason, Allowed: "a path like ts or meta.ts", Remedy: "write the names from the outside in, joined by single dots"})
		}
	}
	columns := make(map[string]string)
	add := func(variable, name string) {
		lower := strings.ToLower(name)
		if first, ok := columns[lower]; ok {
			also := "there"
			if first != variable {
				also = "in " + first
			}
			l.problem(variable, Problem{Found: quote(name) + " is a column already " + also, Allowed: "every name once; upper and lower case are the same to StarRocks", Remedy: "rename one"})
			return
		}
		columns[lower] = variable
	}
	paths := make(map[string]bool)
	for _, d := range l.cfg.Aggregate.Dimensions {
		add("AGGREGATE_DIMENSIONS", d.Name)
		paths[d.Path] = true
	}
	for _, m := range l.cfg.Aggregate.Measures {
		add("AGGREGATE_MEASURES", m.Name)
		if m.Field != "" {
			paths[m.Field] = true
		}
	}
	for _, path := range sortedKeys(paths) {
		for i := range len(path) {
			if path[i] == '.' && paths[path[:i]] {
				l.warn("%s and %s are both read: a field with fields in it is no value, so every event with the second is a bad record.", quote(path[:i]), quote(path))
			}
		}
	}
}

func (l *loader) checkStarRocks() {
	s, t := &l.cfg.StarRocks, l.cfg.Table
	for _, x := range []struct{ variable, name string }{{"STARROCKS_DATABASE", s.Database}, {"STARROCKS_TABLE", s.Table}, {"STARROCKS_VIEW", s.View}} {
		switch {
		case x.name == "" || identifier.MatchString(x.name):
		case strings.Contains(x.name, "`"):
			l.problem(x.variable, Problem{Found: quote(x.name) + " has back-ticks", Allowed: identifierFormat, Remedy: "write the name as it is; the worker quotes it"})
		default:
			l.problem(x.variable, Problem{Found: quote(x.name) + " is no identifier", Allowed: identifierFormat, Remedy: "write the name alone, without the database"})
		}
	}
	l.nameView(s)
	lateness := l.cfg.Aggregate.AllowedLateness
	// A day is still open for lateness after it ended, the present day is one
	// more, and another may begin early by skew or by its time zone.
	least := int((lateness+24*time.Hour-1)/(24*time.Hour)) + 2
	if l.fine("TABLE_RETENTION_DAYS", "ALLOWED_LATENESS") && t.RetentionDays > 0 && t.RetentionDays < least {
		l.problem("TABLE_RETENTION_DAYS", Problem{
			Found:   fmt.Sprintf("%d days would drop days that late events (ALLOWED_LATENESS=%s) still change", t.RetentionDays, lateness),
			Allowed: fmt.Sprintf("at least %d", least), Remedy: "raise it or lower ALLOWED_LATENESS",
		})
	}
	if t.Mode != "create" && l.fine("TABLE_MODE") {
		for _, name := range []string{"TABLE_BUCKETS", "TABLE_REPLICATION", "TABLE_RETENTION_DAYS"} {
			if l.given(name) {
				l.warn("%s has no effect with TABLE_MODE=%s.", name, t.Mode)
			}
		}
	}
}

// nameView fills in the view's name, or clears it for none.
func (l *loader) nameView(s *StarRocks) {
	if !l.fine("STARROCKS_TABLE", "STARROCKS_VIEW") {
		return
	}
	switch {
	case s.View == "":
		s.View = s.Table + "_view"
		if len(s.View) > 64 {
			l.problem("STARROCKS_VIEW", Problem{Found: "not set, and " + quote(s.View) + " is too long for a name", Allowed: identifierFormat, Remedy: "name the view yourself"})
		}
		l.cfg.raw["STARROCKS_VIEW"] = rawValue{text: s.View, source: FromDefault}
	case strings.EqualFold(s.View, "none"):
		s.View = ""
	case strings.EqualFold(s.View, s.Table):
		l.problem("STARROCKS_VIEW", Problem{Found: quote(s.View) + " is the table itself", Allowed: "another name, or none", Remedy: "leave it out for " + s.Table + "_view"})
	}
}

func (l *loader) checkLoads() {
	x, stop := l.cfg.Load, l.cfg.Process.ShutdownTimeout
	if l.fine("FLUSH_MAX_BYTES", "BUFFER_MAX_BYTES") {
		switch {
		case x.FlushMaxBytes > x.BufferMaxBytes:
			l.problem("FLUSH_MAX_BYTES", Problem{Found: fmt.Sprintf("%s is more than BUFFER_MAX_BYTES (%s)", x.FlushMaxBytes, x.BufferMaxBytes), Allowed: "at most the buffer", Remedy: "lower it or raise BUFFER_MAX_BYTES"})
		case 2*x.FlushMaxBytes > x.BufferMaxBytes:
			l.warn("BUFFER_MAX_BYTES (%s) is less than twice FLUSH_MAX_BYTES (%s): reading pauses whenever a full load is under way.", x.BufferMaxBytes, x.FlushMaxBytes)
		}
	}
	const margin = 3 * time.Second // what sealing, the reply and the last commit need
	if l.fine("SHUTDOWN_TIMEOUT", "LOAD_TIMEOUT") && stop < x.Timeout+margin {
		l.warn("SHUTDOWN_TIMEOUT (%s) is below LOAD_TIMEOUT + %s (%s): a stop may cut a load off, and the next start reads its records again.", stop, margin, x.Timeout+margin)
	}
}

func (l *loader) checkDeadLetter() {
	d := l.cfg.DeadLetter
	if l.fine("DEADLETTER_MAX_RATIO") && d.MaxRatio <= 0 {
		l.problem("DEADLETTER_MAX_RATIO", Problem{Found: "0 would stop at every record", Allowed: "a number above 0, up to 1", Remedy: "write for example 0.01 to be strict, 1 to turn it off"})
	}
	switch {
	case d.Topic == "":
	case !isTopic(d.Topic):
		l.problem("DEADLETTER_TOPIC", Problem{Found: quote(d.Topic) + " is no topic name", Allowed: "one topic name", Remedy: "topics have letters, digits, '.', '_' and '-', at most 249"})
	case l.fine("KAFKA_TOPICS", "KAFKA_TOPICS_EXCLUDE") && l.consumed(d.Topic):
		l.problem("DEADLETTER_TOPIC", Problem{Found: quote(d.Topic) + " is one of the topics read, so bad records would come round again", Allowed: "a topic that is not read", Remedy: "choose another, narrow KAFKA_TOPICS or add it to KAFKA_TOPICS_EXCLUDE"})
	}
}
