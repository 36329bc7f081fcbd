package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"

	"rollcall/config"
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

// CheckConnections tries everything the settings name and prints one line each. The error joins what failed.
func CheckConnections(ctx context.Context, opt Options, out io.Writer) error {
	p, err := build(limits{opt})
	if err != nil {
		return err
	}
	defer func() { _ = p.db.Close() }()
	var errs []error
	say := func(code int, what string, err error) {
		if err == nil {
			fmt.Fprintf(out, "ok    %s\n", what)
			return
		}
		fmt.Fprintf(out, "FAIL  %s: %v\n", what, err)
		errs = append(errs, &ExitError{Code: code, Err: fmt.Errorf("%s: %w", what, err)})
	}
	_, err = p.discovery.First(ctx)
	say(ExitSource, "brokers and topics", err)
	err = p.table.Check(ctx)
	say(ExitTable, "table "+limits{opt}.target(), err)
	return errors.Join(errs...)
}
