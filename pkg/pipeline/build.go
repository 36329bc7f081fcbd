package pipeline

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
	"go.uber.org/zap"

	"rollcall/config"
	"rollcall/pkg/aggregate"
	"rollcall/pkg/checkpoint"
	"rollcall/pkg/deadletter"
	"rollcall/pkg/discovery"
	"rollcall/pkg/sink"
	"rollcall/pkg/sink/starrocks"
	"rollcall/pkg/source"
)

// parts are what is built from settings alone, before anything is started or connected.
type parts struct {
	program   *aggregate.Program
	security  []kgo.Opt
	discovery *discovery.Discoverer
	found     *discovery.Metrics
	db        *starrocks.DB
	table     *starrocks.Table
	client    *starrocks.Client
	store     checkpoint.Store
	saver     checkpointSaver // nil if the table is the checkpoint
}

// build makes the parts in the order in which they need each other. Nothing connects.
func build(opt limits) (*parts, error) {
	cfg := opt.Config
	p := &parts{}
	var err error
	if p.program, err = NewProgram(cfg); err != nil {
		return nil, exitf(ExitSettings, "aggregation settings: %w", err)
	}
	if p.security, err = securityOptions(opt); err != nil {
		return nil, exitf(ExitSettings, "kafka settings: %w", err)
	}
	p.found = discovery.NewMetrics(opt.Registry)
	if p.discovery, err = discovery.New(discoveryConfig(opt, p)); err != nil {
		return nil, exitf(ExitSettings, "discovery settings: %w", err)
	}
	if err := p.buildStarRocks(opt); err != nil {
		return nil, err
	}
	p.store, p.saver = buildStore(cfg, p, opt.Log.Named("checkpoint"))
	return p, nil
}

// NewProgram makes the aggregation program of the settings.
func NewProgram(cfg *config.Config) (*aggregate.Program, error) {
	return aggregate.New(aggregate.Config{
		TimeField: cfg.Event.TimeField, TimeFormat: string(cfg.Event.TimeFormat),
		Dimensions: dimensions(cfg), Measures: measures(cfg),
		Location: cfg.Aggregate.TimeZone.Location,
		Lateness: cfg.Aggregate.AllowedLateness, FutureSkew: cfg.Aggregate.MaxFutureSkew,
		MaxKeys: cfg.Aggregate.MaxKeys, Isolation: cfg.Kafka.Isolation,
	})
}

func dimensions(cfg *config.Config) []aggregate.Dimension {
	out := make([]aggregate.Dimension, len(cfg.Aggregate.Dimensions))
	for i, d := range cfg.Aggregate.Dimensions {
		out[i] = aggregate.Dimension{Name: d.Name, Path: d.Path}
	}
	return out
}

func measures(cfg *config.Config) []aggregate.Measure {
	kinds := map[config.MeasureKind]aggregate.Kind{
		config.Count: aggregate.Count, config.Distinct: aggregate.Distinct, config.DistinctHash: aggregate.DistinctHash,
		config.Sum: aggregate.Sum, config.Min: aggregate.Min, config.Max: aggregate.Max,
	}
	out := make([]aggregate.Measure, len(cfg.Aggregate.Measures))
	for i, m := range cfg.Aggregate.Measures {
		out[i] = aggregate.Measure{Name: m.Name, Kind: kinds[m.Kind], Field: m.Field, Scale: m.Scale}
	}
	return out
}

// securityOptions are the options of every Kafka client: TLS, SASL, the dialer.
func securityOptions(opt limits) ([]kgo.Opt, error) {
	k, s := opt.Config.KafkaTLS, opt.Config.KafkaSASL
	sc := source.SecurityConfig{Mechanism: s.Mechanism, Username: s.Username, Password: s.Password.Value()}
	if k.Enabled {
		sc.TLS = &source.TLSConfig{CAFile: k.CAFile, CertFile: k.CertFile, KeyFile: k.KeyFile, ServerName: k.ServerName}
	}
	sc.Token = func(context.Context) (string, error) {
		if s.Token.File() == "" {
			return s.Token.Value(), nil
		}
		t, err := config.ReadSecretFile(opt.ReadFile, s.Token.File())
		return t.Value(), err
	}
	if s.AWSAccessKeyID != "" {
		keys := source.AWSKeys{AccessKey: s.AWSAccessKeyID, SecretKey: s.AWSSecretAccessKey.Value(), SessionToken: s.AWSSessionToken.Value()}
		sc.AWS = func(context.Context) (source.AWSKeys, error) { return keys, nil }
	}
	opts, err := source.SecurityOptions(sc)
	if err != nil {
		return nil, err
	}
	if opt.Dial != nil {
		opts = append(opts, kgo.Dialer(opt.Dial))
	}
	return opts, nil
}

// principal is who the worker logs in as, for messages: an operator has to know whose password or ACL to look at. Empty where the settings
// do not say, as with a token or a client certificate.
func principal(s config.SASL) string {
	switch {
	case s.Mechanism == "":
		return ""
	case s.Username != "":
		return s.Username
	default:
		return s.AWSAccessKeyID // an id, not a secret
	}
}

func discoveryConfig(opt limits, p *parts) discovery.Config {
	k, d := opt.Config.Kafka, opt.Config.Discovery
	return discovery.Config{
		Seeds: k.Brokers, Topics: k.Topics.Names, Pattern: k.Topics.Pattern, Exclude: excludes(k.TopicsExclude, true),
		Interval: d.Interval, Timeout: d.Timeout, RequestTimeout: d.RequestTimeout,
		BreakerFailures: d.BreakerFailures, BreakerCooldown: d.BreakerCooldown,
		Security: p.security, ClientID: "rollcall-discovery", Log: opt.Log.Named("discovery"), Metrics: p.found,
	}
}

// excludes writes topics to exclude: names, or expressions (between slashes for discovery, bare for the source).
func excludes(t config.Topics, slashes bool) []string {
	if t.Pattern != nil {
		if slashes {
			return []string{"/" + t.Pattern.String() + "/"}
		}
		return []string{t.Pattern.String()}
	}
	if slashes {
		return t.Names
	}
	var out []string
	for _, n := range t.Names {
		out = append(out, "^"+regexp.QuoteMeta(n)+"$")
	}
	return out
}

func (p *parts) buildStarRocks(opt limits) error {
	cfg, sr := opt.Config, opt.Config.StarRocks
	var mysqlTLS, httpTLS *tls.Config
	if cfg.StarRocksTLS.Enabled || strings.HasPrefix(strings.Join(sr.HTTP, ","), "https") {
		c, err := cfg.StarRocksTLS.ClientConfig(opt.ReadFile)
		if err != nil {
			return exitf(ExitSettings, "STARROCKS_TLS: %w", err)
		}
		httpTLS = c
		if cfg.StarRocksTLS.Enabled {
			mysqlTLS = c
		}
	}
	var err error
	p.db, err = starrocks.OpenDB(starrocks.DBConfig{
		Addrs: sr.MySQL, User: sr.User, Password: sr.Password.Value(), TLS: mysqlTLS,
		DialContext: opt.Dial, Log: opt.Log.Named("starrocks"),
	})
	if err != nil {
		return exitf(ExitSettings, "STARROCKS_MYSQL: %w", err)
	}
	tc := tableConfig(cfg, opt)
	tc.BeforeAlter = p.beforeAlter(opt)
	p.table, err = starrocks.NewTable(p.db, tc)
	if err != nil {
		return exitf(ExitSettings, "table settings: %w", err)
	}
	p.client, err = starrocks.New(starrocks.Config{
		HTTP: sr.HTTP, User: sr.User, Password: sr.Password.Value(), Database: sr.Database, Table: sr.Table,
		Dimensions: p.program.Dimensions(), Measures: p.program.Measures(), LoadTimeout: cfg.Load.Timeout,
		Compression: starrocks.Compression(cfg.Load.Compression), TLS: httpTLS, AllowPlainRedirect: sr.PlainRedirect,
		DialContext: opt.Dial, Log: opt.Log.Named("starrocks"),
	})
	if err != nil {
		return exitf(ExitSettings, "STARROCKS_HTTP: %w", err)
	}
	return nil
}

func tableConfig(cfg *config.Config, opt limits) starrocks.TableConfig {
	sr := cfg.StarRocks
	tc := starrocks.TableConfig{
		Mode: starrocks.Mode(cfg.Table.Mode), Database: sr.Database, Table: sr.Table, View: sr.View,
		Dimensions: dimensions(cfg), Measures: measures(cfg),
		Buckets: cfg.Table.Buckets, Replication: cfg.Table.Replication, RetentionDays: cfg.Table.RetentionDays,
	}
	if opt.Log != nil {
		tc.Log, tc.Metrics = opt.Log.Named("table"), starrocks.NewMetrics(opt.Registry)
	}
	return tc
}

// buildStore makes the checkpoint store; saver is nil if the table itself is the checkpoint.
func buildStore(cfg *config.Config, p *parts, log *zap.Logger) (checkpoint.Store, checkpointSaver) {
	if dir := cfg.Checkpoint.Store.Dir; dir != "" {
		f := checkpoint.NewFile(checkpoint.FileConfig{
			Dir: dir, Target: cfg.StarRocks.Database + "." + cfg.StarRocks.Table,
			Dimensions: len(p.program.Dimensions()), Measures: p.program.Measures(), Lateness: cfg.Aggregate.AllowedLateness,
			Location: p.program.Location(), Log: log,
		})
		return f, f
	}
	return checkpoint.NewStarRocks(p.db, checkpoint.StarRocksConfig{
		Database: cfg.StarRocks.Database, Table: cfg.StarRocks.Table,
		Dimensions: p.program.Dimensions(), Measures: p.program.Measures(),
	}), nil
}

// labelPrefix is unique to this start, so that a label names one body for ever.
func labelPrefix(worker string) (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("random label prefix: %w", err)
	}
	if len(worker) > 80 { // a label has at most 128 characters (StarRocks: fe FeNameFormat.java)
		worker = worker[:80]
	}
	return worker + "-" + hex.EncodeToString(b[:]), nil
}

// assemble makes the worker once discovery has found brokers to begin with.
func (p *parts) assemble(ctx context.Context, opt limits, first *discovery.Snapshot) (*worker, error) {
	cfg := opt.Config
	seeds := seedList(first, cfg.Kafka.Brokers)
	w := &worker{
		opt: opt, log: opt.Log, program: p.program, metrics: NewMetrics(opt.Registry, p.program.Measures()),
		discovery: p.discovery, store: p.store, table: p.table, background: ctx, failed: make(chan struct{}),
		letterMetrics: deadletter.NewMetrics(opt.Registry, reasons()), started: time.Now(), totals: newTotals(), backlog: newBacklog(),
		noValues: newNoValues(opt.Log, p.program.Measures()),
	}
	if opt.bounded() {
		w.bounded = &bounded{ends: map[source.Partition]int64{}}
	}
	w.owners = newOwners(ctx, w)
	k := cfg.Kafka
	client := &replacing{reg: opt.Registry}
	var err error
	w.source, err = source.New(source.Config{
		Seeds: seeds, Group: k.Group, Topics: k.Topics.Names, Pattern: k.Topics.Pattern, Exclude: excludes(k.TopicsExclude, false),
		Protocol: k.GroupProtocol, SessionTimeout: k.Session, InstanceID: k.InstanceID, Isolation: k.Isolation,
		ClientID: "rollcall-" + cfg.Worker, Security: p.security, Principal: principal(cfg.KafkaSASL), Log: opt.Log.Named("source"), Metrics: source.NewMetrics(opt.Registry, pauseReasons()...), Pace: w.backlog.pace,
		Hooks: func() []kgo.Hook {
			return []kgo.Hook{&w.member, kprom.NewMetrics("rollcall_kafka", kprom.Registerer(client), kprom.Gatherer(opt.Registry))}
		},
	}, w.owners)
	if err != nil {
		return nil, exitf(ExitSettings, "kafka settings: %w", err)
	}
	w.commits = newCommitter(w.source, p.saver, opt.Log.Named("commit"))
	if t := cfg.DeadLetter.Topic; t != "" {
		w.letters, err = deadletter.New(deadletter.Config{
			Topic: t, Seeds: seeds, Client: append([]kgo.Opt{kgo.ClientID("rollcall-deadletter-" + cfg.Worker)}, p.security...),
			Log: opt.Log.Named("deadletter"), Metrics: w.letterMetrics,
		})
		if err != nil {
			return nil, exitf(ExitSettings, "dead-letter settings: %w", err)
		}
	}
	prefix, err := labelPrefix(cfg.Worker)
	if err != nil {
		return nil, err
	}
	w.flusher, err = sink.New(sink.Config{
		Interval: cfg.Load.FlushInterval, MaxBytes: opt.flushMax(), LabelPrefix: prefix, Measures: p.program.Measures(),
		Seal: w.owners.sealAll, Hold: p.table.Unfit, AttemptTimeout: cfg.Load.Timeout + 6*time.Second, PollLimit: cfg.Load.Timeout,
		Log: opt.Log.Named("sink"), Metrics: sink.NewMetrics(opt.Registry, starrocks.Reasons()...), Tracer: opt.Tracer,
	}, p.client)
	if err != nil {
		return nil, exitf(ExitSettings, "load settings: %w", err)
	}
	w.found = p.found
	return w, nil
}

func reasons() []string {
	var out []string
	for _, r := range aggregate.Reasons() {
		out = append(out, string(r))
	}
	return out
}
