package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// worker runs the worker's binary once, as a bounded run into a new stand-in, and checks what it has put there.
func (st *stage) worker(ctx context.Context, group string) (run, error) {
	into, err := startRocks(ctx)
	if err != nil {
		return run{}, err
	}
	defer into.end()
	log, err := os.CreateTemp("", "rollcall-bench-*.log")
	if err != nil {
		return run{}, err
	}
	defer log.Close()
	r, err := st.runWorker(ctx, group, into, log)
	if err != nil {
		return run{}, fmt.Errorf("worker: %w; end of its log (%s):\n%s", err, log.Name(), tail(log, 4<<10))
	}
	diff, err := into.differences(ctx, st.truth)
	if err != nil {
		return run{}, err
	}
	if len(diff) > 0 {
		return run{}, fmt.Errorf("the table is not the truth, %d rows differ, the first: %s; the worker's log: %s", len(diff), diff[0], log.Name())
	}
	if !st.flags.keep {
		_ = os.Remove(log.Name())
	}
	return r, nil
}

func (st *stage) runWorker(ctx context.Context, group string, into *rocks, log *os.File) (run, error) {
	bin, err := filepath.Abs(st.flags.worker)
	if err != nil {
		return run{}, err
	}
	httpAddr, err := freeAddr()
	if err != nil {
		return run{}, err
	}
	cmd := exec.CommandContext(ctx, bin, "run") //nolint:gosec // the binary to measure
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = append(st.settings(group, httpAddr, into.at), "KAFKA_STOP=latest"), log, log, dieWithParent()
	if err := cmd.Start(); err != nil {
		return run{}, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop := shares(ctx, cmd.Process.Pid, st.broker.cmd.Process.Pid, into.cmd.Process.Pid)
	watch := newWatcher(httpAddr, cmd.Process.Pid, st.workload)
	defer watch.client.CloseIdleConnections()
	err = watch.follow(ctx, exited)
	shareOf := stop()
	if err != nil {
		_ = cmd.Process.Kill()
		<-exited
		return run{}, err
	}
	return run{
		events: st.workload.Events, bytes: watch.bytes, span: watch.span, rssMiB: mib(watch.peak),
		cpuSeconds: cpu(cmd.ProcessState).Seconds(), share: shareOf(watch.span.From, watch.span.To),
	}, nil
}

// settings are the worker's environment. Loads every second, so that sealing and loading happen while reading as they do in a long run.
func (st *stage) settings(group, httpAddr string, at rocksReady) []string {
	env := []string{
		"HOSTNAME=bench", "KAFKA_BROKERS=" + st.addr, "KAFKA_TOPICS=" + topic, "KAFKA_GROUP=" + group,
		"STARROCKS_HTTP=" + at.HTTP, "STARROCKS_MYSQL=" + at.MySQL, "STARROCKS_USER=root",
		"STARROCKS_DATABASE=" + database, "STARROCKS_TABLE=" + table, "ALLOWED_LATENESS=96h", "HTTP_ADDR=" + httpAddr,
	}
	if st.workload.Kind == speedEvents {
		env = append(env, "FLUSH_INTERVAL=1s")
	}
	for k, v := range st.workload.settings() {
		env = append(env, k+"="+v)
	}
	return append(env, st.flags.env...)
}

// watcher follows a run from outside.
type watcher struct {
	client     *http.Client
	url        string
	pid        int
	events     int
	partitions int32

	span  span
	bytes int64
	peak  int64
}

func newWatcher(httpAddr string, pid int, w workload) *watcher {
	plain := &http.Client{Transport: &http.Transport{DisableCompression: true}} // packing the answer would count as the worker's work
	return &watcher{client: plain, url: "http://" + httpAddr + "/metrics", pid: pid, events: w.Events, partitions: w.partitions()}
}

// follow returns when the process has ended: an error unless it exited 0 after reading everything. It asks often only when
// the begin or the last record is near, since answering costs the worker time.
func (w *watcher) follow(ctx context.Context, exited chan error) error {
	for {
		pause := 10 * time.Millisecond
		if rss, err := peakRSS(w.pid); err == nil {
			w.peak = max(w.peak, rss)
		}
		if !w.span.over(w.events) {
			n, open := w.read(ctx)
			if open {
				w.span.begin(n, time.Now())
			}
			w.span.seen(n, time.Now())
			if open && n < w.events/10*9 {
				pause = 100 * time.Millisecond
			}
		}
		select {
		case err := <-exited:
			exited <- err
			if err == nil && !w.span.over(w.events) {
				err = errors.New("it ended before its metrics showed every record")
			}
			return err
		case <-time.After(pause):
		}
	}
}

// read asks for the records read so far, and whether every partition may be fetched by now; 0 and false while it does not answer.
func (w *watcher) read(ctx context.Context) (n int, open bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return 0, false
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	sums, err := sum(resp.Body, "rollcall_source_records_total", "rollcall_source_bytes_total", "rollcall_source_assigned_partitions",
		`rollcall_source_paused{reason="restoring"}`)
	if err != nil {
		return 0, false
	}
	w.bytes = max(w.bytes, int64(sums[1]))
	return int(sums[0]), int32(sums[2]) == w.partitions && sums[3] == 0
}

// sum adds up the series of each name, or the one series named with its labels, in a page of metrics.
func sum(page io.Reader, names ...string) ([]float64, error) {
	out := make([]float64, len(names))
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		line := lines.Bytes()
		for i, name := range names {
			rest, ok := bytes.CutPrefix(line, []byte(name))
			if !ok || len(rest) == 0 || rest[0] != '{' && rest[0] != ' ' {
				continue
			}
			v, err := strconv.ParseFloat(string(rest[bytes.LastIndexByte(rest, ' ')+1:]), 64)
			if err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			out[i] += v
		}
	}
	return out, lines.Err()
}

// freeAddr is a loopback address to listen on.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// tail is the end of a file.
func tail(f *os.File, n int64) []byte {
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	b := make([]byte, min(n, st.Size()))
	k, _ := f.ReadAt(b, st.Size()-int64(len(b)))
	return b[:k]
}
