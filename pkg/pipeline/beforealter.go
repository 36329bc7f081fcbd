package pipeline

import (
	"context"

	"rollcall/config"
	"rollcall/pkg/checkpoint"
)

// beforeAlter refuses to add columns for a program that this worker would then refuse to count with (PROGRAM_CHANGE): what ends with an
// error should not have touched the table. It looks at the table's rows only; where they leave a doubt it allows, and resuming decides.
func (p *parts) beforeAlter(opt limits) func(context.Context) error {
	return func(ctx context.Context) error {
		store, ok := p.store.(*checkpoint.StarRocks)
		if !ok || opt.policy().ProgramContinue {
			return nil
		}
		histories, err := store.Histories(ctx)
		if err != nil {
			return err
		}
		other := map[string]string{} // by topic: a program that is not ours
		for _, h := range histories {
			if selects(opt.Config.Kafka, h.Topic) && h.Program != p.program.ID() {
				other[h.Topic] = h.Program
			}
		}
		for _, h := range histories {
			if h.Program == p.program.ID() {
				delete(other, h.Topic)
			}
		}
		for topic, program := range other {
			return exitf(ExitCheckpoint, "table %s lacks a column of these settings, but topic %s was counted into it by program %s and this is %s; "+
				"PROGRAM_CHANGE=continue adds the column and begins a new history", opt.target(), topic, program, p.program.ID())
		}
		return nil
	}
}

// selects reports whether the settings read the topic.
func selects(k config.Kafka, topic string) bool {
	return k.Topics.Match(topic) && !k.TopicsExclude.Match(topic)
}
