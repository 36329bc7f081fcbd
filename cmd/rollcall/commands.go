package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"rollcall/config"
	"rollcall/pkg/pipeline"
	"rollcall/pkg/tracing"
)

// buildVersion is set by the linker (-X main.buildVersion=…).
var buildVersion string //nolint:gochecknoglobals // the linker needs a variable

// version is the linker's, else what the Go tool recorded.
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// load reads the settings; the error carries the exit code for wrong ones.
func load() (*config.Config, error) {
	cfg, err := config.FromOS()
	if err != nil {
		return nil, &pipeline.ExitError{Code: pipeline.ExitSettings, Err: err}
	}
	return cfg, nil
}

type runCmd struct{}

// Run runs the worker until it is told to stop.
func (runCmd) Run() error {
	cfg, err := load()
	if err != nil {
		return err
	}
	log, err := logger(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	for _, w := range cfg.Warnings {
		log.Warn("a setting is probably not what is meant", zap.String("remark", w))
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	traces := tracing.New(os.Getenv, tracing.Service{Version: version(), Instance: cfg.Worker, Attributes: []attribute.KeyValue{
		attribute.String("messaging.consumer.group.name", cfg.Kafka.Group), attribute.String("db.collection.name", cfg.StarRocks.Database+"."+cfg.StarRocks.Table),
	}}, log.Named("tracing"))
	defer traces.Shutdown()
	w, err := pipeline.New(pipeline.Options{Config: cfg, Log: log, Registry: reg, Version: version(), ReadFile: os.ReadFile, Tracer: traces.Tracer()})
	if err != nil {
		return err
	}
	ctx, stop := signals(w.Abort)
	defer stop()
	if os.Getenv("GOGC") == "" { // whoever sets it wants it; GOMEMLIMIT bounds both
		tuning, end := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { tuneGC(tuning) })
		defer wg.Wait()
		defer end()
	}
	log.Info("rollcall starts", zap.String("version", version()), zap.String("worker", cfg.Worker), zap.String("group", cfg.Kafka.Group))
	err = w.Run(ctx)
	log.Info("rollcall ends", zap.Int("exit_code", pipeline.ExitCode(err)), zap.Error(err))
	return err
}

// logger logs to standard error, as LOG_LEVEL and LOG_FORMAT say.
func logger(cfg *config.Config) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(cfg.Process.LogLevel)
	if err != nil {
		return nil, &pipeline.ExitError{Code: pipeline.ExitSettings, Err: fmt.Errorf("LOG_LEVEL: %w", err)}
	}
	zc := zap.NewProductionConfig()
	zc.Level = zap.NewAtomicLevelAt(level)
	zc.Sampling = nil // lines are one per transition already
	zc.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	zc.EncoderConfig.TimeKey = "time"
	zc.DisableStacktrace = true
	zc.DisableCaller = true
	if cfg.Process.LogFormat == "console" {
		zc.Encoding = "console"
		zc.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	}
	log, err := zc.Build()
	if err != nil {
		return nil, fmt.Errorf("logger: %w", err)
	}
	return log, nil
}

type checkCmd struct {
	Connect     bool          `help:"Also reach the brokers, the topics, the group, every front end, a back end, the table and a checkpoint directory. Nothing is changed."`
	OutagesPass bool          `help:"Say what does not answer, but fail only for what somebody has to change: for an init container, since the worker waits for the rest."`
	Timeout     time.Duration `default:"45s" help:"How long all of that may take."`
}

// Run checks the settings and prints every problem and remark.
func (c checkCmd) Run(out io.Writer) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ok    settings")
	for _, w := range cfg.Warnings {
		fmt.Fprintln(out, "note  "+w)
	}
	if !c.Connect {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	return pipeline.CheckConnections(ctx, pipeline.Options{Config: cfg, Log: zap.NewNop(), Registry: prometheus.NewRegistry(), ReadFile: os.ReadFile}, c.OutagesPass, out)
}

type configCmd struct {
	Markdown bool `help:"Write the page of all settings (docs/settings.md) instead."`
}

// Run prints the settings.
func (c configCmd) Run(out io.Writer) error {
	if c.Markdown {
		return config.WriteMarkdown(out)
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, v := range cfg.Effective() {
		fmt.Fprintf(tw, "%s\t%s\t(%s)\n", v.Setting.Name, v.Value, v.Source)
	}
	return tw.Flush()
}

type tableCmd struct{}

// Run prints the DDL of the table and the view.
func (tableCmd) Run(out io.Writer) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	table, view, err := pipeline.TableDDL(cfg)
	if err != nil {
		return &pipeline.ExitError{Code: pipeline.ExitSettings, Err: err}
	}
	_, err = fmt.Fprintf(out, "%s;\n", table)
	if view != "" {
		_, e := fmt.Fprintf(out, "\n%s;\n", view)
		err = errors.Join(err, e)
	}
	return err
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(out io.Writer) error {
	_, err := fmt.Fprintln(out, "rollcall "+version())
	return err
}
