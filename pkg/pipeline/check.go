package pipeline

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"rollcall/config"
	"rollcall/pkg/preflight"
	"rollcall/pkg/sink/starrocks"
)

// TableDDL gives the statements that create the table and the view of the settings; view is empty if there is none. Nothing connects.
func TableDDL(cfg *config.Config) (table, view string, err error) {
	db, err := starrocks.OpenDB(starrocks.DBConfig{Addrs: cfg.StarRocks.MySQL, User: cfg.StarRocks.User})
	if err != nil {
		return "", "", err
	}
	defer func() { _ = db.Close() }()
	t, err := starrocks.NewTable(db, tableConfig(cfg, limits{}))
	if err != nil {
		return "", "", err
	}
	return t.DDL(), t.ViewDDL(), nil
}

// CheckConnections tries everything the settings name, changes nothing and prints one line each. The error joins what failed, Kafka's (exit
// code 14) before StarRocks' (13) and the checkpoint directory's (12). With outagesPass what merely does not answer at the moment is printed and no error: the worker waits for
// it, and somebody has to change something for the rest only.
func CheckConnections(ctx context.Context, opt Options, outagesPass bool, out io.Writer) error {
	p, err := build(limits{opt})
	if err != nil {
		return err
	}
	defer func() { _ = p.db.Close() }()
	kafka, rocks := checkKafka(opt, p), checkStarRocks(opt, p)
	var results [2][]preflight.Result
	var wg sync.WaitGroup
	wg.Go(func() { results[0] = preflight.TryKafka(ctx, kafka) })
	wg.Go(func() { results[1] = preflight.TryStarRocks(ctx, rocks) })
	wg.Wait()
	var errs []error
	var store []preflight.Result
	if dir := opt.Config.Checkpoint.Store.Dir; dir != "" {
		store = preflight.TryStore(dir)
	}
	for _, r := range slices.Concat(results[0], results[1], store) {
		fmt.Fprintln(out, r)
		if r.Level != preflight.Fail || outagesPass && r.Outage {
			continue
		}
		code := map[preflight.Part]int{preflight.Kafka: ExitSource, preflight.StarRocks: ExitTable, preflight.Checkpoint: ExitCheckpoint}[r.Part]
		errs = append(errs, &ExitError{Code: code, Err: fmt.Errorf("%s: %s", r.Name, r.Detail)})
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.Join(errs...)
}

func checkKafka(opt Options, p *parts) preflight.KafkaConfig {
	k := opt.Config.Kafka
	return preflight.KafkaConfig{
		Brokers: k.Brokers, Security: p.security, TLS: opt.Config.KafkaTLS.Enabled, SASL: opt.Config.KafkaSASL.Mechanism != "",
		Topics: slices.DeleteFunc(slices.Clone(k.Topics.Names), k.TopicsExclude.Match), Pattern: k.Topics.Pattern, Excluded: k.TopicsExclude.Match,
		Group: k.Group, DeadLetter: opt.Config.DeadLetter.Topic, Dial: opt.Dial,
	}
}

func checkStarRocks(opt Options, p *parts) preflight.StarRocksConfig {
	cfg, sr := opt.Config, opt.Config.StarRocks
	var httpTLS, mysqlTLS *tls.Config
	if cfg.StarRocksTLS.Enabled || strings.HasPrefix(strings.Join(sr.HTTP, ","), "https") {
		c, err := cfg.StarRocksTLS.ClientConfig(opt.ReadFile)
		if err == nil { // build has read it already
			httpTLS = c
			if cfg.StarRocksTLS.Enabled {
				mysqlTLS = c
			}
		}
	}
	return preflight.StarRocksConfig{
		HTTP: sr.HTTP, MySQL: sr.MySQL, User: sr.User, Password: sr.Password.Value(), Database: sr.Database, Table: sr.Table,
		HTTPTLS: httpTLS, MySQLTLS: mysqlTLS, PlainRedirect: sr.PlainRedirect, Shape: p.table.Check, Mode: starrocks.Mode(cfg.Table.Mode),
		Restores: cfg.Checkpoint.Store.Dir == "", Dial: opt.Dial,
		Client: func(front string) (*starrocks.Client, error) {
			return starrocks.New(starrocks.Config{
				HTTP: []string{front}, User: sr.User, Password: sr.Password.Value(), Database: sr.Database, Table: sr.Table,
				Dimensions: p.program.Dimensions(), Measures: p.program.Measures(), TLS: httpTLS, AllowPlainRedirect: sr.PlainRedirect, DialContext: opt.Dial,
			})
		},
	}
}
