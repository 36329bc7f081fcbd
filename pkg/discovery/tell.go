package discovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"
)

// said is what the log has been told and that has not ended since: one line per transition, not per round.
type said struct {
	failing    bool
	failedAt   time.Time
	denied     string
	suspicious string
}

// tell writes the log lines of a round that was made. It belongs to whoever holds the turn.
func (d *Discoverer) tell(c *Change, err error) {
	var re *RoundError
	switch {
	case Permanent(err):
		fields := []zap.Field{zap.Error(err)}
		why := err.Error()
		if errors.As(err, &re) { // its text has times in it, which differ from round to round
			why, fields = re.worst().Err.Error(), causeFields(re)
		}
		if d.said.denied != why {
			d.said.denied = why
			d.s.Log.Error("discovery refused", fields...)
		}
	case errors.As(err, &re):
		if !d.said.failing {
			d.said.failing, d.said.failedAt = true, time.Now()
			d.s.Log.Warn("discovery round failed", append(causeFields(re), zap.Strings("brokers", causeLines(re)))...)
		}
	}
	if c == nil {
		return
	}
	if d.said.failing {
		d.said.failing = false
		d.s.Log.Info("discovery works again", zap.Duration("after", time.Since(d.said.failedAt)))
	}
	if d.said.denied != "" && !Permanent(err) {
		d.said.denied = ""
		d.s.Log.Info("discovery no longer refused")
	}
	d.tellChange(c)
}

func (d *Discoverer) tellChange(c *Change) {
	log := d.s.Log
	if s := strings.Join(c.Suspicious, "; "); s != d.said.suspicious {
		d.said.suspicious = s
		if s != "" {
			log.Warn("suspicious metadata, to be confirmed", zap.Strings("what", firstFew(c.Suspicious)))
		}
	}
	if c.Snapshot == nil {
		return
	}
	for _, t := range c.AddedTopics {
		log.Info("topic found", zap.String("topic", t), zap.Stringer("id", c.Snapshot.Topics[t].ID),
			zap.Int("partitions", len(c.Snapshot.Topics[t].Partitions)))
	}
	for _, r := range c.Recreated {
		log.Warn("topic was re-created", zap.String("topic", r.Topic), zap.Stringer("old_id", r.OldID), zap.Stringer("id", r.NewID))
	}
	for _, t := range c.GoneTopics {
		log.Error("topic is gone", zap.String("topic", t))
	}
	logPartitions(log.Info, "partitions found", c.AddedPartitions)
	logPartitions(log.Error, "partitions are gone", c.GonePartitions)
	logPartitions(log.Warn, "partitions without leader", c.Leaderless)
	logPartitions(log.Info, "partitions have a leader again", c.Led)
}

// breakerMoved publishes and logs a transition of the breaker, once. err is the round's.
func (d *Discoverer) breakerMoved(err error, elapsed time.Duration) {
	if d.moved == nil {
		return
	}
	m := *d.moved
	d.moved = nil
	d.s.Metrics.setBreaker(m.to)
	d.mu.Lock()
	opened := d.status.BreakerSince
	if now := breakerName(m.to); d.status.Breaker != now { // open to open by way of half open is one outage
		d.status.Breaker, d.status.BreakerSince = now, time.Now()
	}
	d.mu.Unlock()

	fields := []zap.Field{zap.Duration("elapsed", elapsed), zap.Duration("budget", d.s.Timeout)}
	var re *RoundError
	if errors.As(err, &re) {
		fields = append(causeFields(re), zap.Strings("brokers", causeLines(re)))
	}
	switch {
	case m.to == gobreaker.StateOpen && m.from == gobreaker.StateHalfOpen:
		d.s.Log.Debug("discovery probe failed, breaker stays open", fields...)
	case m.to == gobreaker.StateOpen:
		d.s.Log.Warn("discovery breaker opened", append(fields, zap.Int("failures", d.s.BreakerFailures), zap.Duration("cooldown", d.s.BreakerCooldown))...)
	case m.to == gobreaker.StateHalfOpen:
		d.s.Log.Info("discovery breaker half open: brokers answer and refuse", append(fields, zap.Error(err))...)
	default:
		d.s.Log.Info("discovery breaker closed", append(fields, zap.Duration("after", time.Since(opened)))...)
	}
}

// causeFields are the broker to look at first, its innermost cause, and the times.
func causeFields(re *RoundError) []zap.Field {
	c := re.worst()
	return []zap.Field{
		zap.String("broker", c.Broker), zap.String("error", c.Err.Error()), zap.Int("tried", len(re.Causes)),
		zap.Duration("elapsed", re.Elapsed), zap.Duration("budget", re.Budget),
	}
}

func causeLines(re *RoundError) []string {
	lines := make([]string, len(re.Causes))
	for i, c := range re.Causes {
		lines[i] = fmt.Sprintf("%s: %v (after %s)", c.Broker, c.Err, c.Elapsed.Round(time.Millisecond))
	}
	return firstFew(lines)
}

// firstFew keeps a log line readable.
func firstFew(l []string) []string {
	const most = 20
	if len(l) <= most {
		return l
	}
	return append(slices.Clone(l[:most]), fmt.Sprintf("and %d more", len(l)-most))
}

func logPartitions(log func(string, ...zap.Field), msg string, tps []TopicPartition) {
	byTopic := map[string][]int32{}
	for _, tp := range tps {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	for _, t := range sortedKeys(maps.Keys(byTopic)) {
		log(msg, zap.String("topic", t), zap.Int32s("partitions", byTopic[t]))
	}
}
