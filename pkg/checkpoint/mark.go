package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"rollcall/pkg/aggregate"
)

// markName and markVersion begin the metadata of every commit of ours.
const (
	markName    = "rollcall/"
	markVersion = 1
)

// Mark is what a committed offset says besides the offset: the metadata of every commit of ours.
type Mark struct {
	History History
	// Table is L: the next offset that rows known to be loaded carry, 0 if none yet.
	Table int64
	// Day is the greatest day of the rows that carry Table; only with HasDay.
	Day    aggregate.Day
	HasDay bool
	// Target is the <database>.<table> the rows are in.
	Target string
}

// Format is the metadata: rollcall/1 history=<topic id>/<start>.<epoch>-<program> table=<L> day=<YYYY-MM-DD or -> target=<db.table>.
func (m Mark) Format() string {
	day := "-"
	if m.HasDay {
		day = m.Day.String()
	}
	return markName + strconv.Itoa(markVersion) + " history=" + m.History.id() + " table=" + strconv.FormatInt(m.Table, 10) + " day=" + day +
		" target=" + m.Target
}

// ParseMark reads a commit's metadata. ok is false for a foreign commit: anything Format does not write. The error is a
// *NewerFormatError for metadata of a later version of rollcall, whose meaning must not be guessed.
func ParseMark(topic string, partition int32, metadata string) (m Mark, ok bool, err error) {
	rest, found := strings.CutPrefix(metadata, markName)
	if !found {
		return Mark{}, false, nil
	}
	version, rest, _ := strings.Cut(rest, " ")
	v := 0
	if plainNumber(version) {
		v, _ = strconv.Atoi(version)
	}
	switch {
	case v == 0:
		return Mark{}, false, nil
	case v > markVersion:
		return Mark{}, false, &NewerFormatError{
			Where: fmt.Sprintf("the committed offset of %s/%d", topic, partition), Got: v, Known: markVersion,
		}
	}
	m, ok = parseFields(topic, partition, rest)
	if !ok || m.Format() != metadata {
		return Mark{}, false, nil
	}
	return m, true, nil
}

func parseFields(topic string, partition int32, s string) (Mark, bool) {
	var f [4]string
	for i, name := range [...]string{"history=", "table=", "day=", "target="} {
		var found bool
		if s, found = strings.CutPrefix(s, name); !found {
			return Mark{}, false
		}
		if name == "target=" { // the last one: a quoted name may hold anything
			f[i] = s
			break
		}
		if f[i], s, found = strings.Cut(s, " "); !found {
			return Mark{}, false
		}
	}
	topicID, interval, _ := strings.Cut(f[0], "/")
	h, err := parseID(topicID, interval)
	if err != nil {
		return Mark{}, false
	}
	h.Topic, h.Partition = topic, partition
	m := Mark{History: h, Target: f[3]}
	if h.Validate() != nil || m.Target == "" {
		return Mark{}, false
	}
	if m.Table, err = strconv.ParseInt(f[1], 10, 64); err != nil || m.Table < 0 {
		return Mark{}, false
	}
	if f[2] != "-" {
		if m.Day, err = aggregate.ParseDay(f[2]); err != nil {
			return Mark{}, false
		}
		m.HasDay = true
	}
	return m, true
}

// plainNumber reports whether s is a short decimal number as we write it.
func plainNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0' && len(s) < 10
}
