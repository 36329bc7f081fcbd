package checkpoint

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rollcall/pkg/aggregate"
)

var (
	topicGen   = rapid.StringMatching(`[a-zA-Z0-9._-]{3,40}`)
	topicIDGen = rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_-]{22}`), rapid.Map(rapid.StringN(1, 20, 40), StandInID))
	historyGen = rapid.Custom(func(t *rapid.T) History {
		return History{
			Topic:     topicGen.Draw(t, "topic"),
			Partition: rapid.Int32Min(0).Draw(t, "partition"),
			TopicID:   topicIDGen.Draw(t, "topic id"),
			Start:     rapid.Int64Min(0).Draw(t, "start"),
			Epoch:     rapid.Int32Min(-1).Draw(t, "epoch"),
			Program:   rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "program"),
		}
	})
	markGen = rapid.Custom(func(t *rapid.T) Mark {
		m := Mark{
			History: historyGen.Draw(t, "history"),
			Table:   rapid.Int64Min(0).Draw(t, "table"),
			Target:  rapid.StringMatching(`[a-z_]{1,8}\.[a-zA-Z0-9_ =.-]{1,20}`).Draw(t, "target"),
		}
		if rapid.Bool().Draw(t, "has day") {
			m.Day, m.HasDay = aggregate.Day(rapid.Int32Range(10957, 60000).Draw(t, "day")), true
		}
		return m
	})
)

func TestHistoryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := historyGen.Draw(t, "history")
		require.NoError(t, h.Validate())
		back, err := ParseHistory(h.String())
		require.NoError(t, err)
		require.Equal(t, h, back)
	})
}

func TestHistoryString(t *testing.T) {
	h := History{Topic: "app.events_v2-eu", Partition: 11, TopicID: "Rr-3xY_kQ9S0uQhZ1o2ABw", Start: 1234, Epoch: -1, Program: "0a1b2c3d"}
	require.Equal(t, "app.events_v2-eu/11/Rr-3xY_kQ9S0uQhZ1o2ABw/1234.-1-0a1b2c3d", h.String())
	require.Equal(t, "~my.2fcluster", StandInID("my/cluster"))
}

func TestParseHistoryRefuses(t *testing.T) {
	for _, s := range []string{
		"", "t", "t/0/id", "t/0/id/1.2-aaaaaaaa/x", "/0/id/1.2-aaaaaaaa", "t/-1/id/1.2-aaaaaaaa", "t/00/id/1.2-aaaaaaaa", "t/0//1.2-aaaaaaaa",
		"t/0/~/1.2-aaaaaaaa", "t/0/id/1.2-AAAAAAAA", "t/0/id/1.2-aaaaaaa", "t/0/id/01.2-aaaaaaaa", "t/0/id/+1.2-aaaaaaaa", "t/0/id/-1.2-aaaaaaaa",
		"t/0/id/1.-2-aaaaaaaa", "t/0/id/1-aaaaaaaa", "t/0/id/9223372036854775808.2-aaaaaaaa", "t/2147483648/id/1.2-aaaaaaaa", "t/0/id/1.2147483648-aaaaaaaa",
		"t t/0/id/1.2-aaaaaaaa", "../0/id/1.2-aaaaaaaa", "t/0/id'/1.2-aaaaaaaa", "t/0/id/1.2-aaaaaaaa ",
	} {
		_, err := ParseHistory(s)
		require.Error(t, err, s)
	}
}

func TestHistoryOrder(t *testing.T) {
	h := History{Start: 10, Epoch: 5, Program: "b"}
	sorted := []History{{Start: 99, Epoch: -1, Program: "z"}, {Start: 99, Epoch: 4, Program: "z"}, {Start: 9, Epoch: 5, Program: "z"}, {Start: 10, Epoch: 5, Program: "a"}, h}
	require.True(t, slices.IsSortedFunc(sorted, History.Compare))
	require.True(t, sorted[0].Less(h))
	require.False(t, h.Less(h))
}

func FuzzParseHistory(f *testing.F) {
	f.Add("app.events_v2-eu/11/Rr-3xY_kQ9S0uQhZ1o2ABw/1234.-1-0a1b2c3d")
	f.Add("t/0/~c/0.0-00000000")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHistory(s)
		if err == nil {
			require.Equal(t, s, h.String())
		}
	})
}

func TestMarkFormat(t *testing.T) {
	m := Mark{History: hist(1234, -1), Table: 4711, Day: 20652, HasDay: true, Target: "analytics.dau"}
	require.Equal(t, "rollcall/1 history=AAAAAAAAAAAAAAAAAAAAAA/1234.-1-aaaaaaaa table=4711 day=2026-07-18 target=analytics.dau", m.Format())
	m.Table, m.HasDay, m.Day = 0, false, 0
	require.Equal(t, "rollcall/1 history=AAAAAAAAAAAAAAAAAAAAAA/1234.-1-aaaaaaaa table=0 day=- target=analytics.dau", m.Format())
}

func TestMarkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := markGen.Draw(t, "mark")
		back, ours, err := ParseMark(m.History.Topic, m.History.Partition, m.Format())
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, m, back)
	})
}

// TestMarkForeign: anything that Format does not write is somebody else's.
func TestMarkForeign(t *testing.T) {
	good := Mark{History: hist(1, 2), Table: 3, Day: 20000, HasDay: true, Target: "d.t"}.Format()
	for _, s := range []string{
		"", " ", "consumer-1", "rollcall", "rollcall/", "rollcall/x " + good, "rollcall/0" + good[len("rollcall/1"):], "rollcall/01" + good[len("rollcall/1"):],
		" " + good, good[:len(good)-len("d.t")], "rollcall/1", "rollcall/1 ", "rollcall/1 table=3 history=x day=- target=d.t",
		"rollcall/1 history=AAAA/1.2-aaaaaaaa table=-3 day=- target=d.t", "rollcall/1 history=AAAA/1.2-aaaaaaaa table=3 day=2026-02-30 target=d.t",
		"rollcall/1 history=AAAA/1.2-aaaaaaaa table=3 day=2026-01-01 00:00:00 target=d.t", "rollcall/1 history=AAAA/1.2 table=3 day=- target=d.t",
		"rollcall/1 history=/1.2-aaaaaaaa table=3 day=- target=d.t", "rollcall/1 history=A/A/1.2-aaaaaaaa table=3 day=- target=d.t",
		"rollcall/1 history=AAAA/1.2-aaaaaaaa  table=3 day=- target=d.t", "ROLLCALL/1 history=AAAA/1.2-aaaaaaaa table=3 day=- target=d.t",
	} {
		_, ours, err := ParseMark("t", 3, s)
		require.NoError(t, err, s)
		require.False(t, ours, s)
	}
	_, ours, err := ParseMark("t", 3, good)
	require.NoError(t, err)
	require.True(t, ours)
}

func TestMarkNewer(t *testing.T) {
	for s, version := range map[string]int{"rollcall/2": 2, "rollcall/2 anything": 2, "rollcall/17 history=x": 17} {
		_, ours, err := ParseMark("t", 3, s)
		var newer *NewerFormatError
		require.ErrorAs(t, err, &newer, s)
		require.False(t, ours)
		require.Equal(t, version, newer.Got)
		require.True(t, IsPermanent(err))
		require.Contains(t, err.Error(), "t/3")
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(Mark{History: hist(1, 2), Table: 3, Day: 20000, HasDay: true, Target: "d.t"}.Format())
	f.Add(Mark{History: hist(1, -1), Target: "d.t"}.Format())
	f.Add("rollcall/2 ")
	f.Fuzz(func(t *testing.T, s string) {
		m, ours, err := ParseMark("t", 3, s)
		if ours {
			require.NoError(t, err)
			require.Equal(t, s, m.Format())
			require.NoError(t, m.History.Validate())
		}
	})
}
