package starrocks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/pkg/sink"
)

func TestExcerpt(t *testing.T) {
	require.Equal(t, "a b c", excerpt("  a\n\tb\r\n c "))
	long := excerpt(strings.Repeat("é", 1000))
	require.LessOrEqual(t, len(long), 512+len("…"))
	require.True(t, strings.HasSuffix(long, "é…"))
	require.Equal(t, "\ufffd", excerpt("\xff\xfe"))
}

func replySeeds() []string {
	ok := success("L", 1)
	return []string{
		ok, ok[:len(ok)-1], `{"Label":"L","Status":"Label Already Exists","ExistingJobStatus":"FINISHED"}`,
		`{"status":"FAILED","code":"1","msg":"No backend alive.","message":"No backend alive."}`,
		`{"Status":"Fail","Status":"Success"}`, `[]`, `null`, `{}`, ``, `{"Status":{"a":[1]}}`, `{"state":"VISIBLE","status":"OK"}`,
		`{"state":"VISIBLE","STATE":"ABORTED","status":"OK"}`,
	}
}

// Done needs the exact words in one well-formed object, for any input.
func FuzzReply(f *testing.F) {
	for _, s := range replySeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rep := classify(jsonAnswer(string(body)), "L")
		require.NotZero(t, rep.Outcome)
		if rep.Outcome != sink.OutcomeDone {
			require.Error(t, rep.Err)
			require.Contains(t, Reasons(), rep.Reason)
			return
		}
		require.NoError(t, rep.Err)
		// An independent reader must find the words too.
		require.True(t, json.Valid(body))
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &m))
		find := func(name string) (words []string) {
			for k, v := range m {
				var s string
				if strings.EqualFold(k, name) && json.Unmarshal(v, &s) == nil {
					words = append(words, s)
				}
			}
			return words
		}
		status := find("status")
		finished := slices.Contains(status, "Label Already Exists") && slices.Contains(find("existingjobstatus"), "FINISHED")
		require.True(t, finished || slices.Contains(status, "Success") || slices.Contains(status, "Publish Timeout"))
	})
}

func FuzzState(f *testing.F) {
	for _, s := range replySeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		state, err := decodeState(body)
		if err != nil {
			require.Empty(t, state)
			return
		}
		require.True(t, json.Valid(body))
		require.Contains(t, []sink.LabelState{
			sink.LabelUnknown, sink.LabelPrepare, sink.LabelPrepared, sink.LabelCommitted,
			sink.LabelVisible, sink.LabelAborted,
		}, state)
	})
}
