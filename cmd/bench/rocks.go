package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"rollcall/pkg/oracle"
	"rollcall/pkg/sink/starrockstest"
)

const (
	database = "bench"
	table    = "dau"
)

// rocksReady is the stand-in's line.
type rocksReady struct{ HTTP, MySQL string }

// playRocks is the stand-in StarRocks with an empty database.
func playRocks(ctx context.Context) error {
	c := starrockstest.New(starrockstest.Config{})
	if err := c.Start(); err != nil {
		return fmt.Errorf("stand-in StarRocks: %w", err)
	}
	defer c.Close()
	if err := c.Exec("CREATE DATABASE " + database); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	if err := tell(rocksReady{HTTP: c.FEURL(1), MySQL: c.MySQLAddr(1)}); err != nil {
		return err
	}
	parentGone(ctx)
	return nil
}

// rocks is the stand-in in its own process.
type rocks struct {
	*child
	at rocksReady
}

// startRocks starts it; end it.
func startRocks(ctx context.Context) (*rocks, error) {
	c, err := spawn(ctx, roleRocks, struct{}{})
	if err != nil {
		return nil, err
	}
	r := &rocks{child: c}
	if err := c.hear(&r.at); err != nil {
		return nil, fmt.Errorf("stand-in StarRocks: %w", err)
	}
	return r, nil
}

// differences reads the table as users do and compares it with the truth.
func (r *rocks) differences(ctx context.Context, truth *oracle.Truth) ([]string, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.InterpolateParams = "tcp", r.at.MySQL, "root", true
	conn, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(conn)
	defer db.Close()
	rows, err := oracle.Query(ctx, db, database+"."+table+"_view")
	if err != nil {
		return nil, err
	}
	return truth.Diff(rows), nil
}
