package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"rollcall/pkg/checkpoint"
	"rollcall/pkg/discovery"
	"rollcall/pkg/source"
)

// topicID is the id a topic is counted under, its stand-in where brokers have none, and whether it was created again while this worker ran.
func (w *worker) topicID(topic string) (id, standIn string, recreated bool, err error) {
	snap := w.discovery.Snapshot()
	if snap == nil {
		return "", "", false, fmt.Errorf("topic %s: no discovery round has succeeded yet", topic)
	}
	t, ok := snap.Topics[topic]
	if !ok {
		w.discovery.Kick()
		return "", "", false, fmt.Errorf("topic %s: discovery does not know it (yet)", topic)
	}
	if !t.ID.IsZero() {
		id = t.ID.String()
	}
	return id, checkpoint.StandInID(snap.ClusterID), w.recreated.has(topic, id), nil
}

// partitionsOf lists the partitions of p's topic, p among them even if discovery does not know it yet.
func (w *worker) partitionsOf(p source.Partition) []int32 {
	out := w.topics()[p.Topic]
	if !slices.Contains(out, p.Partition) {
		out = append(out, p.Partition)
	}
	slices.Sort(out)
	return out
}

// topics is every known partition by topic.
func (w *worker) topics() map[string][]int32 {
	snap := w.discovery.Snapshot()
	if snap == nil {
		return nil
	}
	out := make(map[string][]int32, len(snap.Topics))
	for name, t := range snap.Topics {
		for p := range t.Partitions {
			out[name] = append(out[name], p)
		}
	}
	return out
}

// nothingMatches says that KAFKA_TOPICS is a pattern that no known topic matches, empty if it is not so.
func (w *worker) nothingMatches() string {
	k := w.opt.Config.Kafka
	if k.Topics.Pattern == nil || len(w.topics()) > 0 {
		return ""
	}
	return fmt.Sprintf("no topic that this user may see matches KAFKA_TOPICS (%s), those of KAFKA_TOPICS_EXCLUDE left out; one that appears is read", k.Topics.Pattern)
}

// goneTopics are those of KAFKA_TOPICS, by name, that are confirmed to be gone. A topic that a pattern matched may go without harm.
func (w *worker) goneTopics() []string {
	known := w.topics()
	if known == nil {
		return nil
	}
	var out []string
	for _, name := range w.opt.Config.Kafka.Topics.Names {
		if _, ok := known[name]; !ok {
			out = append(out, name)
		}
	}
	return out
}

// changed is discovery's callback, from its goroutine. It informs the source and never stops it.
func (w *worker) changed(c discovery.Change) {
	if c.BrokersChanged {
		w.updateSeeds(c.Snapshot)
	}
	if len(c.AddedTopics) > 0 {
		w.source.AddTopics(c.AddedTopics...)
	}
	if len(c.AddedPartitions) > 0 || len(c.Led) > 0 {
		// In a classic group only the leader's metadata makes new partitions appear, and nobody knows who leads.
		w.source.Refresh()
	}
	for _, r := range c.Recreated {
		w.recreated.add(r.Topic, r.NewID.String())
		ctx, cancel := context.WithTimeout(w.background, replaceTimeout)
		if err := w.source.ReplaceTopic(ctx, r.Topic); err != nil {
			w.log.Info("the client still replaces a re-created topic", zap.String("topic", r.Topic), zap.Error(err))
		}
		cancel()
	}
	for _, t := range c.GoneTopics {
		w.log.Error("topic is gone: its partitions are no longer read, what was counted stays", zap.String("topic", t))
	}
}

// replaceTimeout bounds what discovery's goroutine waits for; the source goes on with it in the background.
const replaceTimeout = 100 * time.Millisecond

// updateSeeds gives every client the brokers of the last good round.
func (w *worker) updateSeeds(s *discovery.Snapshot) {
	seeds := seedList(s, w.opt.Config.Kafka.Brokers)
	if err := w.source.UpdateSeeds(seeds); err != nil {
		w.log.Warn("seed brokers not updated", zap.Error(err))
	}
	if w.letters != nil {
		if err := w.letters.UpdateSeeds(seeds); err != nil {
			w.log.Warn("seed brokers of the dead-letter client not updated", zap.Error(err))
		}
	}
}

// seedList is the discovered brokers, the configured ones only where there are none: a client begins with any of its seeds (franz-go 1.22.3:
// Client.randomSeedIdx), and each that is dead costs it seconds. Where all of the discovered are replaced at once, the configured names are
// discovery's to find the others by.
func seedList(s *discovery.Snapshot, configured []string) []string {
	if s != nil {
		if found := s.Addrs(); len(found) > 0 {
			return found
		}
	}
	return configured
}
