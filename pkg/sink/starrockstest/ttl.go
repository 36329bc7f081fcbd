package starrockstest

import (
	"slices"
	"strconv"
	"time"
)

// dropExpired honours partition_live_number every Config.TTLInterval: of the day partitions that are not in the future
// the newest that many stay. StarRocks: fe DynamicPartitionScheduler.
func (e *engine) dropExpired(now time.Time) (next time.Time) {
	if e.cfg.TTLInterval <= 0 {
		return time.Time{}
	}
	if e.ttlDue.IsZero() {
		e.ttlDue = now.Add(e.cfg.TTLInterval)
	}
	if e.ttlDue.After(now) {
		return e.ttlDue
	}
	e.ttlDue = now.Add(e.cfg.TTLInterval)
	today := "p" + now.UTC().Format("20060102")
	e.eachTable(func(_ *database, t *table) {
		v, ok := t.prop("partition_live_number")
		n, err := strconv.Atoi(v)
		if !ok || err != nil || n < 1 || len(t.part.columns) != 1 {
			return
		}
		past := slices.DeleteFunc(sortedNames(t.partitions), func(name string) bool { return len(name) != len(today) || name > today })
		for _, name := range past[:max(0, len(past)-n)] {
			t.dropPartition(name)
			t.history = nil
			e.touch()
		}
	})
	return e.ttlDue
}
