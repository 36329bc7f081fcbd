package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Commit commits offsets with their metadata in one request, under the member's present generation, and waits for the answer; at most
// Config.CommitTimeout. Calls are served one after the other.
//
// A commit is refused, and the others go, if its generation is over (ErrNotAssigned), or if it is behind one made under the same
// assignment (ErrBehind); a Start below that mark lifts it, for the history that begins there. Generation 0 names no assignment: it is allowed to the owner of the topic's
// partition 0, for any partition of the topic, which it must have seen to have no commit.
//
// Ownership is checked when the request is about to be sent, and the client does not join again while it is under way, so that in a
// classic group no offset is committed for a partition that another member has. A partition that is being revoked is still owned.
//
// The error joins a PartitionError for each partition that is not committed.
func (s *Source) Commit(ctx context.Context, commits []Commit) error {
	if len(commits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CommitTimeout)
	defer cancel()
	select {
	case s.committing <- struct{}{}:
		defer func() { <-s.committing }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for an earlier commit: %w", ctx.Err())
	}
	r := &commitRun{source: s, want: make(map[Partition]Commit, len(commits)), failed: make(map[Partition]error)}
	client, err := r.prepare(commits)
	if err != nil {
		return err
	}
	r.send(ctx, client)
	return r.finish()
}

// commitRun is one commit request and what became of its partitions. After send has returned only finish uses it.
type commitRun struct {
	source *Source
	want   map[Partition]Commit
	failed map[Partition]error
}

// prepare takes the commits that may be sent.
func (r *commitRun) prepare(commits []Commit) (*kgo.Client, error) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, ErrNoClient
	}
	for _, c := range commits {
		if err := r.refusalLocked(c); err != nil {
			r.refuse(c.Partition, err)
			continue
		}
		r.want[c.Partition] = c
	}
	return s.client, nil
}

// refusalLocked says why a commit must not be sent. Source.mu is held.
func (r *commitRun) refusalLocked(c Commit) error {
	s := r.source
	if c.Offset < 0 {
		return fmt.Errorf("commit of offset %d: an offset is not negative", c.Offset)
	}
	st := s.ownedLocked(c.Partition, c.Generation)
	if c.Generation == 0 {
		if s.parts[Partition{Topic: c.Partition.Topic}] == nil {
			return ErrNotAssigned
		}
		st = s.parts[c.Partition]
	} else if st == nil {
		return ErrNotAssigned
	}
	if st != nil && st.replaced {
		return fmt.Errorf("%w: the topic is being replaced by a new one of its name", ErrNotAssigned)
	}
	if st != nil && c.Offset < st.committed {
		return fmt.Errorf("%w: %d after %d", ErrBehind, c.Offset, st.committed)
	}
	return nil
}

func (r *commitRun) refuse(p Partition, err error) {
	r.failed[p] = err
	r.source.cfg.Metrics.commits.WithLabelValues(commitRefused).Inc()
}

// send sends what is wanted and sorts the answer.
func (r *commitRun) send(ctx context.Context, client *kgo.Client) {
	if len(r.want) == 0 {
		return
	}
	offsets := make(map[Partition]position, len(r.want))
	for p, c := range r.want {
		offsets[p] = position{offset: c.Offset, epoch: max(c.LeaderEpoch, -1)}
	}
	ctx = kgo.PreCommitFnContext(ctx, r.adjust)
	client.CommitOffsetsSync(ctx, offsetsOf(offsets), func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		r.answered(req, resp, err)
	})
}

// errNothingLeft stops a request that has become empty.
var errNothingLeft = errors.New("every partition was given up meanwhile")

// adjust is called by the client just before it sends: it puts in the metadata and takes out what is not owned any more.
func (r *commitRun) adjust(req *kmsg.OffsetCommitRequest) error {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := req.Topics[:0]
	for _, t := range req.Topics {
		ps := t.Partitions[:0]
		for _, rp := range t.Partitions {
			p := Partition{Topic: t.Topic, Partition: rp.Partition}
			c := r.want[p]
			if err := r.refusalLocked(c); err != nil {
				delete(r.want, p)
				r.refuse(p, err)
				continue
			}
			rp.Metadata = &c.Metadata
			ps = append(ps, rp)
		}
		if t.Partitions = ps; len(ps) > 0 {
			topics = append(topics, t)
		}
	}
	if req.Topics = topics; len(topics) == 0 {
		return errNothingLeft
	}
	return nil
}

// answered sorts the broker's answer. Only a partition whose answer says so is committed.
func (r *commitRun) answered(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
	if errors.Is(err, errNothingLeft) {
		return
	}
	if err != nil || resp == nil {
		for p := range r.want {
			r.failed[p] = fmt.Errorf("commit: %w", err)
		}
		return
	}
	names := make(map[[16]byte]string, len(req.Topics))
	for _, t := range req.Topics {
		names[t.TopicID] = t.Topic
	}
	for p := range r.want {
		r.failed[p] = errors.New("commit: the answer does not name the partition")
	}
	for _, t := range resp.Topics {
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for _, rp := range t.Partitions {
			p := Partition{Topic: name, Partition: rp.Partition}
			if _, wanted := r.want[p]; !wanted {
				continue
			}
			delete(r.failed, p)
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				r.failed[p] = fmt.Errorf("commit: %w", err)
			}
		}
	}
}

// finish moves the marks, counts, and joins the errors.
func (r *commitRun) finish() error {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	ok, failed := 0, 0
	for p, c := range r.want {
		if r.failed[p] != nil {
			failed++
			continue
		}
		ok++
		st := s.parts[p]
		if st != nil && (c.Generation == 0 || st.generation == c.Generation) {
			st.committed = max(st.committed, c.Offset)
		}
	}
	s.cfg.Metrics.commits.WithLabelValues(commitOK).Add(float64(ok))
	s.cfg.Metrics.commits.WithLabelValues(commitFailed).Add(float64(failed))
	errs := make([]error, 0, len(r.failed))
	for p, err := range r.failed {
		errs = append(errs, &PartitionError{Partition: p, Err: err})
	}
	return errors.Join(errs...)
}
