package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// share says who had the machine's cores while a run was measured, each from 0 to 1: without it nobody can tell a slow worker from a busy
// machine. All zero where the kernel does not say it.
type share struct{ client, servers, others, idle float64 }

func (s share) String() string {
	return fmt.Sprintf("cores: client %.0f %%, broker and stand-in %.0f %%, others %.0f %%, idle %.0f %%", s.client*100, s.servers*100, s.others*100, s.idle*100)
}

// ticks are one reading, in the kernel's clock ticks since the start of the machine or process.
type ticks struct {
	at                           time.Time
	total, idle, client, servers int64
}

// shares reads the kernel's counters until stop is called; the function returned then tells the share between two moments.
func shares(ctx context.Context, client int, servers ...int) (stop func() func(from, to time.Time) share) {
	ctx, cancel := context.WithCancel(ctx)
	var all []ticks
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if t, err := readTicks(client, servers); err == nil {
				all = append(all, t)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() func(from, to time.Time) share {
		cancel()
		wg.Wait()
		return func(from, to time.Time) share { return between(all, from, to) }
	}
}

func between(all []ticks, from, to time.Time) share {
	var first, last *ticks
	for i := range all {
		if t := &all[i]; t.at.Before(from) || first == nil {
			first = t
		} else if !t.at.After(to) || last == nil {
			last = t
		}
	}
	if last == nil || last.total <= first.total {
		return share{}
	}
	part := func(a, b int64) float64 { return float64(b-a) / float64(last.total-first.total) }
	s := share{client: part(first.client, last.client), servers: part(first.servers, last.servers), idle: part(first.idle, last.idle)}
	s.others = max(0, 1-s.client-s.servers-s.idle)
	return s
}

func readTicks(client int, servers []int) (t ticks, err error) {
	t.at = time.Now()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	for i, f := range bytes.Fields(line) {
		if i == 0 || i > 8 { // the name; guests are in user already
			continue
		}
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return t, err
		}
		t.total += n
		if i == 4 || i == 5 { // idle, waiting for a disk
			t.idle += n
		}
	}
	for _, pid := range servers {
		n, err := processTicks(pid)
		if err != nil {
			return t, err
		}
		t.servers += n
	}
	t.client, err = processTicks(client)
	return t, err
}

// processTicks is what a living process has used.
func processTicks(pid int) (int64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return userAndSystem(b)
}

// userAndSystem adds fields 14 and 15 of /proc/<pid>/stat; the second is a name in brackets that may have spaces.
func userAndSystem(stat []byte) (int64, error) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("%d fields after the name", len(f))
	}
	user, err := strconv.ParseInt(string(f[11]), 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(string(f[12]), 10, 64)
	return user + system, err
}
