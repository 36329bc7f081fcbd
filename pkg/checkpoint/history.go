package checkpoint

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Compare orders histories of one partition and topic id: by leader epoch, then start, then (only to be total) program. The greatest is
// the live one.
func (h History) Compare(o History) int {
	return cmp.Or(cmp.Compare(h.Epoch, o.Epoch), cmp.Compare(h.Start, o.Start), strings.Compare(h.Program, o.Program))
}

// Less reports whether h is older than o: o is live rather than h.
func (h History) Less(o History) bool { return h.Compare(o) < 0 }

// String is the history's name, the value of the rollcall_source column.
func (h History) String() string {
	return h.Topic + "/" + strconv.FormatInt(int64(h.Partition), 10) + "/" + h.id()
}

// id is what String and Mark share: <topic id>/<start>.<epoch>-<program>.
func (h History) id() string {
	return h.TopicID + "/" + strconv.FormatInt(h.Start, 10) + "." + strconv.FormatInt(int64(h.Epoch), 10) + "-" + h.Program
}

// ParseHistory is the inverse of History.String. It takes only what String writes; the error names the value.
func ParseHistory(s string) (History, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return History{}, fmt.Errorf("history %q: want <topic>/<partition>/<topic id>/<start>.<epoch>-<program>", s)
	}
	partition, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil {
		return History{}, fmt.Errorf("history %q: partition: %w", s, err)
	}
	h, err := parseID(parts[2], parts[3])
	if err != nil {
		return History{}, fmt.Errorf("history %q: %w", s, err)
	}
	h.Topic, h.Partition = parts[0], int32(partition)
	if err := h.Validate(); err != nil {
		return History{}, err
	}
	if h.String() != s {
		return History{}, fmt.Errorf("history %q: not in canonical form %q", s, h)
	}
	return h, nil
}

// parseID reads a topic id and <start>.<epoch>-<program>; topic and partition stay empty.
func parseID(topicID, interval string) (History, error) {
	start, rest, ok := strings.Cut(interval, ".")
	cut := strings.LastIndexByte(rest, '-')
	if !ok || cut < 0 {
		return History{}, fmt.Errorf("interval %q: want <start>.<epoch>-<program>", interval)
	}
	h := History{TopicID: topicID, Program: rest[cut+1:]}
	var err error
	if h.Start, err = strconv.ParseInt(start, 10, 64); err != nil {
		return History{}, fmt.Errorf("start: %w", err)
	}
	epoch, err := strconv.ParseInt(rest[:cut], 10, 32)
	if err != nil {
		return History{}, fmt.Errorf("leader epoch: %w", err)
	}
	h.Epoch = int32(epoch)
	return h, nil
}

// Validate reports what keeps the history from having a name that can be read back.
func (h History) Validate() error {
	switch {
	case !plain(h.Topic) || h.Topic == "." || h.Topic == "..":
		return fmt.Errorf("history %q: topic name %q is not one of Kafka's", h, h.Topic)
	case h.Partition < 0:
		return fmt.Errorf("history %q: negative partition", h)
	case !plain(strings.TrimPrefix(h.TopicID, "~")):
		return fmt.Errorf("history %q: topic id %q", h, h.TopicID)
	case h.Start < 0:
		return fmt.Errorf("history %q: negative start", h)
	case h.Epoch < -1:
		return fmt.Errorf("history %q: leader epoch below -1", h)
	case !isProgram(h.Program):
		return fmt.Errorf("history %q: program %q is not 8 hex digits", h, h.Program)
	}
	return nil
}

// StandInID is the topic id used where brokers have none: ~<cluster id>, with what a name cannot carry made harmless.
func StandInID(clusterID string) string {
	var b strings.Builder
	b.WriteByte('~')
	for i := range len(clusterID) {
		if c := clusterID[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, ".%02x", c)
		}
	}
	return b.String()
}

// plain reports whether s has only the characters of Kafka's topic names, which are also those of URL-safe base64 and a dot.
func plain(s string) bool {
	for i := range len(s) {
		if !isPlain(s[i]) {
			return false
		}
	}
	return s != ""
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

func isProgram(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 8
}
