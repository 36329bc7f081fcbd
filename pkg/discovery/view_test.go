package discovery

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// ans writes an answer down: "b1" is the broker that answers, then one word per topic: name:id:partitions. Partitions are a list of ids, each with
// an optional leader and epoch (3=-1@7), default leader 1. Instead of partitions: absent, refused or unclear. Three brokers, unless a word
// is brokers=n.
func ans(text string) *answer {
	words := strings.Fields(text)
	a := &answer{from: words[0], clusterID: "c", topics: map[string]topicAnswer{}}
	n := 3
	for _, w := range words[1:] {
		if v, ok := strings.CutPrefix(w, "brokers="); ok {
			n = atoi(v)
			continue
		}
		f := strings.Split(w, ":")
		ta := topicAnswer{verdict: present, partitions: map[int32]partitionAnswer{}}
		ta.id[0] = byte(atoi(f[1]))
		switch f[2] {
		case "absent":
			ta = topicAnswer{verdict: absent}
		case "refused":
			ta = topicAnswer{verdict: refused}
		case "unclear":
			ta = topicAnswer{verdict: unclear}
		default:
			for _, p := range strings.Split(f[2], ",") {
				id, pa := partitionOf(p)
				ta.partitions[id] = pa
			}
		}
		a.topics[f[0]] = ta
	}
	for i := range n {
		a.brokers = append(a.brokers, Broker{ID: int32(i), Addr: fmt.Sprintf("b%d:9092", i)})
	}
	return a
}

func partitionOf(text string) (int32, partitionAnswer) {
	pa := partitionAnswer{leader: 1, epoch: -1}
	if v, ok := strings.CutSuffix(text, "?"); ok {
		text, pa.unclear = v, true
	}
	text, epoch, ok := strings.Cut(text, "@")
	if ok {
		pa.epoch = int32(atoi(epoch))
	}
	text, leader, ok := strings.Cut(text, "=")
	if ok {
		pa.leader = int32(atoi(leader))
	}
	return int32(atoi(text)), pa
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// show writes a snapshot down: topic:id:partitions, with m for missing and l for leaderless behind the number.
func show(s *Snapshot) string {
	if s == nil {
		return "none"
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Topics)) {
		t := s.Topics[name]
		var ps []string
		for _, p := range slices.Sorted(maps.Keys(t.Partitions)) {
			ps = append(ps, fmt.Sprint(p)+map[PartitionState]string{Live: "", Leaderless: "l", Missing: "m"}[t.Partitions[p].State])
		}
		words = append(words, fmt.Sprintf("%s:%d:%s", name, t.ID[0], strings.Join(ps, ",")))
	}
	return strings.Join(words, " ")
}

// changes writes what differs down.
func changes(c Change) string {
	var words []string
	add := func(what string, l ...string) {
		for _, x := range l {
			words = append(words, what+x)
		}
	}
	tps := func(l []TopicPartition) []string {
		var out []string
		for _, tp := range l {
			out = append(out, fmt.Sprintf("%s/%d", tp.Topic, tp.Partition))
		}
		return out
	}
	add("+", c.AddedTopics...)
	add("+", tps(c.AddedPartitions)...)
	for _, r := range c.Recreated {
		add("~", fmt.Sprintf("%s:%d>%d", r.Topic, r.OldID[0], r.NewID[0]))
	}
	add("-", c.GoneTopics...)
	add("-", tps(c.GonePartitions)...)
	add("leaderless ", tps(c.Leaderless)...)
	add("led ", tps(c.Led)...)
	add("denied ", c.Denied...)
	if len(c.Suspicious) > 0 {
		words = append(words, "?")
	}
	return strings.Join(words, " ")
}

type step struct{ in, change, out string }

func TestView(t *testing.T) {
	const begin = "t:1:0,1"
	for name, steps := range map[string][]step{
		"growth is believed at once": {
			{"b0 t:1:0,1,2", "+t/2", "t:1:0,1,2"},
			{"b0 t:1:0,1,2 u:9:0", "+u", "t:1:0,1,2 u:9:0"},
		},
		"a missing topic needs three rounds from three brokers": {
			{"b0", "?", "t:1:0m,1m"},
			{"b1 t:0:absent", "?", "t:1:0m,1m"},
			{"b2", "-t", ""},
			{"b0", "", ""},
		},
		"one broker repeating itself confirms nothing where there are three": {
			{"b0", "?", "t:1:0m,1m"},
			{"b0", "?", "t:1:0m,1m"},
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2", "-t", ""},
		},
		"an answer that has it ends the suspicion": {
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2 t:1:0,1", "led t/0 led t/1", "t:1:0,1"},
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2", "-t", ""},
		},
		"a missing partition, oscillating": {
			{"b0 t:1:0", "?", "t:1:0,1m"},
			{"b1 t:1:0,1", "led t/1", "t:1:0,1"},
			{"b0 t:1:0", "?", "t:1:0,1m"},
			{"b1 t:1:0,1", "led t/1", "t:1:0,1"},
			{"b0 t:1:1", "?", "t:1:0m,1"},
			{"b1 t:1:1", "?", "t:1:0m,1"},
			{"b2 t:1:1", "-t/0", "t:1:1"},
			{"b2 t:1:0,1", "+t/0", "t:1:0,1"},
		},
		"growth and loss in one answer": {
			{"b0 t:1:0,2", "+t/2 ?", "t:1:0,1m,2"},
		},
		"gapped growth is taken, the gap fills": {
			{"b0 t:1:0,1,3", "+t/3", "t:1:0,1,3"},
			{"b0 t:1:0,1,2,3", "+t/2", "t:1:0,1,2,3"},
		},
		"leader gone and back": {
			{"b0 t:1:0=-1,1", "leaderless t/0", "t:1:0l,1"},
			{"b0 t:1:0=-1,1", "", "t:1:0l,1"},
			{"b0 t:1:0=2,1", "led t/0", "t:1:0,1"},
		},
		"new without a leader": {
			{"b0 t:1:0,1,2=-1", "+t/2 leaderless t/2", "t:1:0,1,2l"},
		},
		"a re-created topic needs confirmation": {
			{"b0 t:2:0", "?", begin},
			{"b1 t:2:0", "?", begin},
			{"b2 t:2:0,1,2", "~t:1>2", "t:2:0,1,2"},
			{"b0 t:1:0", "?", "t:2:0,1,2"},
			{"b1 t:2:0,1,2", "", "t:2:0,1,2"},
		},
		"two different new ids do not confirm each other": {
			{"b0 t:2:0", "?", begin},
			{"b1 t:3:0", "?", begin},
			{"b2 t:3:0", "?", begin},
			{"b0 t:3:0", "~t:1>3", "t:3:0"},
		},
		"gone, then back with another id": {
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2", "-t", ""},
			{"b0 t:2:0", "~t:1>2", "t:2:0"},
		},
		"gone, then back as it was": {
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2", "-t", ""},
			{"b0 t:1:0,1", "+t", begin},
		},
		"brokers that learn topic ids, and one that forgot": {
			{"b0 t:1:0,1 u:0:0", "+u", "t:1:0,1 u:0:0"},
			{"b0 t:0:0,1 u:7:0", "", "t:1:0,1 u:7:0"},
		},
		"refused and unclear say nothing": {
			{"b0 t:1:refused", "denied t", begin},
			{"b1 t:1:refused", "denied t", begin},
			{"b2 t:1:refused", "denied t", begin},
			{"b0 t:1:unclear", "", begin},
			{"b0 u:1:unclear t:1:0,1?", "", begin},
		},
		"refused in between ends a suspicion": {
			{"b0", "?", "t:1:0m,1m"},
			{"b1", "?", "t:1:0m,1m"},
			{"b2 t:1:refused", "denied t", "t:1:0m,1m"},
			{"b2", "?", "t:1:0m,1m"},
		},
		"no brokers in the answer": {
			{"b0 brokers=0 t:1:0,1", "?", begin},
		},
		"an older epoch is a lagging broker, until confirmed": {
			{"b0 t:1:0=1@5,1", "", begin},
			{"b1 t:1:0=-1@4,1", "", begin},
			{"b2 t:1:0=-1@4,1", "", begin},
			{"b0 t:1:0=-1@4,1", "leaderless t/0", "t:1:0l,1"},
			{"b0 t:1:0=2@6,1", "led t/0", begin},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(3, nil)
			at := time.Unix(1000, 0)
			c, err := v.apply(ans("b0 "+begin), at)
			require.NoError(t, err)
			require.Equal(t, "+t", changes(c))
			for i, s := range steps {
				c, err = v.apply(ans(s.in), at.Add(time.Duration(i+1)*time.Second))
				require.NoError(t, err)
				require.Equal(t, s.change, changes(c), "step %d: %s", i, s.in)
				require.Equal(t, s.out, show(c.Snapshot), "step %d: %s", i, s.in)
				require.Same(t, v.snap, c.Snapshot)
			}
		})
	}
}

func TestViewFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string
		steps []string // answers
		errs  []error  // nil: accepted
		out   string   // after the last
	}{
		"plain":               {[]string{"t"}, []string{"b0 t:1:0"}, []error{nil}, "t:1:0"},
		"leaderless is fine":  {[]string{"t"}, []string{"b0 t:1:0=-1,1"}, []error{nil}, "t:1:0l,1"},
		"unknown topic":       {[]string{"t", "u"}, []string{"b0 t:1:0", "b1 t:1:0 u:0:absent", "b2 t:1:0"}, []error{ErrUnconfirmed, ErrUnconfirmed, ErrUnknownTopic}, "none"},
		"unknown, then there": {[]string{"t"}, []string{"b0", "b1", "b2 t:1:0"}, []error{ErrUnconfirmed, ErrUnconfirmed, nil}, "t:1:0"},
		"refused":             {[]string{"t"}, []string{"b0 t:0:refused", "b1 t:0:refused", "b2 t:0:refused"}, []error{ErrUnconfirmed, ErrUnconfirmed, ErrDenied}, "none"},
		"refused beside unknown": {
			[]string{"t", "u"},
			[]string{"b0 t:0:refused", "b1 t:0:refused", "b2 t:0:refused u:1:0"},
			[]error{ErrUnconfirmed, ErrUnconfirmed, ErrDenied},
			"none",
		},
		"gapped":               {[]string{"t"}, []string{"b0 t:1:0,2", "b1 t:1:0,2", "b2 t:1:0,2"}, []error{ErrUnconfirmed, ErrUnconfirmed, nil}, "t:1:0,2"},
		"gapped, then whole":   {[]string{"t"}, []string{"b0 t:1:0,2", "b1 t:1:0,1,2"}, []error{ErrUnconfirmed, nil}, "t:1:0,1,2"},
		"being created":        {[]string{"t"}, []string{"b0 t:1:unclear", "b0 t:1:0"}, []error{ErrUnconfirmed, nil}, "t:1:0"},
		"no brokers":           {[]string{"t"}, []string{"b0 brokers=0 t:1:0", "b1 t:1:0"}, []error{ErrUnconfirmed, nil}, "t:1:0"},
		"pattern, nothing yet": {nil, []string{"b0", "b1", "b2"}, []error{ErrUnconfirmed, ErrUnconfirmed, nil}, ""},
		"one broker only":      {nil, []string{"b0 brokers=1", "b0 brokers=1", "b0 brokers=1"}, []error{ErrUnconfirmed, ErrUnconfirmed, nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := newView(3, tc.names)
			var c Change
			for i, in := range tc.steps {
				var err error
				c, err = v.apply(ans(in), time.Unix(int64(i), 0))
				if tc.errs[i] == nil {
					require.NoError(t, err, "step %d", i)
					continue
				}
				require.ErrorIs(t, err, tc.errs[i], "step %d", i)
				require.Equal(t, !errors.Is(tc.errs[i], ErrUnconfirmed), Permanent(err), "step %d: %v", i, err)
				require.Nil(t, c.Snapshot)
			}
			require.Equal(t, tc.out, show(c.Snapshot))
		})
	}
}

func TestViewSinceAndCounts(t *testing.T) {
	v := newView(2, nil)
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for i, in := range []string{"b0 t:1:0,1,2 u:1:0,1", "b0 t:1:0=-1,1,2 u:1:0,1", "b1 t:1:0=-1,1 u:1:0,1", "b2 t:1:0=-1,1=-1 u:1:0,1", "b0 t:1:0=-1,1=-1"} {
		_, err := v.apply(ans(in), at(int64(i)))
		require.NoError(t, err)
	}
	require.Equal(t, "t:1:0l,1l u:1:0m,1m", show(v.snap))
	require.Equal(t, PartitionCounts{Known: 4, Leaderless: 2, Missing: 2, Gone: 1}, v.counts())
	require.Equal(t, at(1), v.snap.Topics["t"].Partitions[0].Since)
	require.Equal(t, at(4), v.snap.Topics["u"].Partitions[0].Since)
	since, which := oldestLeaderless(v.snap)
	require.Equal(t, at(1), since)
	require.Equal(t, TopicPartition{"t", 0}, which)

	_, err := v.apply(ans("b1 t:1:0,1,2"), at(5))
	require.NoError(t, err)
	require.Equal(t, "t:1:0,1,2", show(v.snap))
	require.Equal(t, PartitionCounts{Known: 3, Gone: 2}, v.counts())
}

// Whatever brokers answer: a snapshot that was handed out never changes; nothing is gone or re-created that `confirmations` answers in a row
// from different brokers did not say; what an answer has is in the snapshot of that round unless the topic has another id.
func TestViewProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const confirmations = 3
		v := newView(confirmations, nil)
		var history []*answer
		var kept []*Snapshot
		var shown []string
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			a := drawAnswer(t)
			before := v.snap
			c, err := v.apply(a, time.Unix(int64(len(history)), 0))
			history = append(history, a)
			if err != nil {
				continue
			}
			kept, shown = append(kept, c.Snapshot), append(shown, show(c.Snapshot))
			for _, topic := range c.GoneTopics {
				check(t, history, func(a *answer) bool { ta, ok := a.topics[topic]; return !ok || ta.verdict == absent }, "topic gone")
			}
			for _, tp := range c.GonePartitions {
				check(t, history, func(a *answer) bool { _, ok := a.topics[tp.Topic].partitions[tp.Partition]; return !ok }, "partition gone")
			}
			for _, r := range c.Recreated {
				if _, ok := before.Topics[r.Topic]; ok {
					check(t, history, func(a *answer) bool { return a.topics[r.Topic].id == r.NewID }, "re-created")
				}
			}
			for name, ta := range a.topics {
				got := c.Snapshot.Topics[name]
				for p := range ta.partitions {
					if _, ok := got.Partitions[p]; !ok && (got.ID == ta.id || got.ID.IsZero()) {
						t.Fatalf("%s/%d was answered and is not there", name, p)
					}
				}
			}
		}
		for i, s := range kept {
			if show(s) != shown[i] {
				t.Fatalf("snapshot %d changed from %s to %s", i, shown[i], show(s))
			}
		}
	})
}

// check wants the newest answers that say so without a break to be at least three and from three brokers.
func check(t *rapid.T, history []*answer, says func(*answer) bool, what string) {
	by := map[string]bool{}
	rounds := 0
	for _, a := range slices.Backward(history) {
		if !says(a) {
			break
		}
		rounds++
		by[a.from] = true
	}
	if rounds < 3 || len(by) < 3 {
		t.Fatalf("%s after %d rounds from %d brokers", what, rounds, len(by))
	}
}

func drawAnswer(t *rapid.T) *answer {
	words := []string{fmt.Sprintf("b%d", rapid.IntRange(0, 3).Draw(t, "from"))}
	for _, topic := range []string{"t", "u"} {
		// Mostly the same, so that confirmations happen.
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0: // not listed
		case 1:
			words = append(words, topic+":1:absent")
		case 2:
			words = append(words, topic+":2:0,1")
		default:
			words = append(words, topic+":1:"+rapid.SampledFrom([]string{"0", "0,1", "0=-1,1", "1", "refused", "0,1,2"}).Draw(t, "partitions"))
		}
	}
	return ans(strings.Join(words, " "))
}
