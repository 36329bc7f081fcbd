package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"rollcall/pkg/sink/starrockstest"
)

// playRate is a pace at which one can watch.
const playRate = 2000

// play runs everything until it is interrupted.
func play(ctx context.Context, f flags) error {
	s, err := newStage(f, starrockstest.Config{HTTPPort: 8030, BEPort: 8040, MySQLPort: 9030}, 8080)
	if s != nil {
		defer s.close()
	}
	if err != nil {
		return err
	}
	if err := s.worker.Start(); err != nil {
		return err
	}
	rctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.worker.Ready(rctx); err != nil {
		s.showLog(os.Stderr)
		return err
	}
	fmt.Printf(`rollcall is running on embedded parts: three kfake brokers and a stand-in StarRocks.

  status page   http://%s/
  metrics       http://%s/metrics
  SQL           mysql -h 127.0.0.1 -P 9030 -u root -e 'SELECT dt, SUM(pv) FROM %s.%s_view GROUP BY dt ORDER BY dt'
  worker log    %s
  try a check   KAFKA_BROKERS=%s KAFKA_TOPICS=%s KAFKA_GROUP=mine STARROCKS_HTTP=%s \
                STARROCKS_MYSQL=%s STARROCKS_USER=root STARROCKS_DATABASE=%s STARROCKS_TABLE=mine %s check --connect

%d events a second. Ctrl-C ends it.
`, s.worker.Addr(), s.worker.Addr(), database, table, s.log.Name(), strings.Join(s.kafka.Addrs(), ","), topic, s.rocks.FEURL(1),
		s.rocks.MySQLAddr(1), database, f.worker, playRate)
	fd := newFeed(s, time.Now(), false)
	err = fd.run(ctx, playRate, 0)
	if ctx.Err() != nil {
		fmt.Println("stopping")
		return s.stop(30 * time.Second)
	}
	return err
}
