package oracle

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDiffSeesEveryDifference(t *testing.T) {
	g := NewGenerator(1, 50, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), 48*time.Hour)
	truth := NewTruth(time.UTC)
	for range 2000 {
		truth.Add(g.Next())
	}
	rows := truth.Rows()
	require.Len(t, rows, 2*3*4)
	require.Empty(t, truth.Diff(rows))
	for name, change := range map[string]func(*Row){
		"uv": func(r *Row) { r.UV++ }, "pv": func(r *Row) { r.PV-- }, "amount": func(r *Row) { r.Amount++ },
		"least": func(r *Row) { r.Least-- }, "most": func(r *Row) { r.Most++ }, "key": func(r *Row) { r.Channel = "x" },
	} {
		got := append([]Row{}, rows...)
		change(&got[7])
		require.NotEmpty(t, truth.Diff(got), name)
	}
	require.NotEmpty(t, truth.Diff(rows[1:]))
	require.NotEmpty(t, truth.Diff(append(rows, rows[0])))
}

func TestEventIsJSON(t *testing.T) {
	e := Event{User: 1<<64 - 1, Platform: "ios", Channel: "ads", Cents: 1205, At: time.UnixMilli(1767225600123)}
	var got struct {
		User   uint64      `json:"user_id"`
		Amount json.Number `json:"amount"`
		TS     int64       `json:"ts"`
		Props  struct{ Channel string }
	}
	require.NoError(t, json.Unmarshal(e.AppendJSON(nil), &got))
	require.Equal(t, uint64(1<<64-1), got.User)
	require.Equal(t, "12.05", got.Amount.String())
	require.Equal(t, int64(1767225600123), got.TS)
	require.Equal(t, "ads", got.Props.Channel)
}
