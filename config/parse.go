package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones must not depend on what the image or the node has
	"unicode"
)

// setter is a type of this package that reads itself from a setting's text.
// Problems come without the variable's name.
type setter interface {
	set(text string) []Problem
	format() string // what is allowed, for messages and documentation
}

// Bytes is a size in bytes.
type Bytes int64

const bytesFormat = "a size like 64MiB, 500KB or plain bytes"

// String is the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	units := []string{"", "KiB", "MiB", "GiB", "TiB"}
	n, i := int64(b), 0
	for n != 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

func (b *Bytes) format() string { return bytesFormat }

func (b *Bytes) set(text string) []Problem {
	n, err := parseBytes(text)
	if err != nil {
		return bad(quote(text)+" "+err.Error(), bytesFormat, "write for example 64MiB")
	}
	*b = Bytes(n)
	return nil
}

// parseBytes reads a number with an optional unit: B, KB MB GB TB (powers of
// 1000) or KiB MiB GiB TiB, also as K M G T and Ki Mi Gi Ti the way Kubernetes
// writes them. Case does not matter.
func parseBytes(text string) (int64, error) {
	digits := strings.TrimRightFunc(text, func(r rune) bool { return !unicode.IsDigit(r) })
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	unit = strings.TrimSuffix(unit, "b")
	factor := int64(1)
	switch unit {
	case "":
	case "k":
		factor = 1e3
	case "m":
		factor = 1e6
	case "g":
		factor = 1e9
	case "t":
		factor = 1e12
	case "ki":
		factor = 1 << 10
	case "mi":
		factor = 1 << 20
	case "gi":
		factor = 1 << 30
	case "ti":
		factor = 1 << 40
	default:
		return 0, fmt.Errorf("has an unknown unit")
	}
	f, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case err != nil && digits != "" && strings.Trim(digits, "0123456789") == "":
		return 0, fmt.Errorf("is too large")
	case err != nil:
		return 0, fmt.Errorf("is not a whole number with a unit")
	case int64(f) > math.MaxInt64/factor:
		return 0, fmt.Errorf("is too large")
	}
	return int64(f) * factor, nil
}

// Addresses are host:port pairs.
type Addresses []string

const addressFormat = "host:port, several by comma"

func (a *Addresses) format() string { return addressFormat }

func (a *Addresses) set(text string) []Problem {
	var problems []Problem
	for _, item := range list(text) {
		if err := checkHostPort(item, false); err != nil {
			problems = append(problems, bad(quote(item)+" "+err.Error(), addressFormat, "write for example kafka-1:9092,kafka-2:9092 or fe-1:9030")...)
			continue
		}
		*a = append(*a, item)
	}
	if len(*a) == 0 && problems == nil {
		return bad(quote(text)+" names no address", addressFormat, "write for example kafka-1:9092,kafka-2:9092 or fe-1:9030")
	}
	return problems
}

// ListenAddr is where a server listens: host:port, the host may be empty.
type ListenAddr string

const listenFormat = ":port or host:port"

func (a *ListenAddr) format() string { return listenFormat }

func (a *ListenAddr) set(text string) []Problem {
	if err := checkHostPort(text, true); err != nil {
		return bad(quote(text)+" "+err.Error(), listenFormat, "write for example :8080")
	}
	*a = ListenAddr(text)
	return nil
}

// checkHostPort accepts host:port. With listen set the host may be empty and
// the port 0.
func checkHostPort(addr string, listen bool) error {
	if strings.Contains(addr, "://") {
		return fmt.Errorf("has a scheme")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("is not host:port")
	}
	if host == "" && !listen {
		return fmt.Errorf("has no host")
	}
	if strings.ContainsFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune("/@?#,", r)
	}) {
		return fmt.Errorf("has a host name that cannot be one")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || (n == 0 && !listen) {
		return fmt.Errorf("has a port that is not one")
	}
	return nil
}

// URLs are http or https addresses without a path.
type URLs []string

const urlFormat = "http://host:port or https://host:port, several by comma"

func (u *URLs) format() string { return urlFormat }

func (u *URLs) set(text string) []Problem {
	const remedy = "write for example http://fe-1:8030,http://fe-2:8030"
	var problems []Problem
	for _, item := range list(text) {
		clean, err := checkURL(item)
		if err != nil {
			problems = append(problems, bad(quote(item)+" "+err.Error(), urlFormat, remedy)...)
			continue
		}
		*u = append(*u, clean)
	}
	if len(*u) == 0 && problems == nil {
		return bad(quote(text)+" names no address", urlFormat, remedy)
	}
	return problems
}

func checkURL(item string) (string, error) {
	u, err := url.Parse(item)
	switch {
	case err != nil:
		return "", fmt.Errorf("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("does not begin with http:// or https://")
	case u.User != nil:
		return "", fmt.Errorf("holds a user; that belongs into STARROCKS_USER and STARROCKS_PASSWORD")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("has something after the port")
	}
	if err := checkHostPort(u.Host, false); err != nil {
		return "", err
	}
	return u.Scheme + "://" + u.Host, nil
}

// list splits at commas and drops white space and empty items, so a trailing
// comma does no harm.
func list(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// Topics is a choice of topics: names, or a pattern, or nothing.
type Topics struct {
	Names []string
	// Pattern matches whole names; it is anchored, so it means the same to
	// whoever searches with it. Nil if names are given.
	Pattern *regexp.Regexp
}

const topicsFormat = "topic names by comma, or one /regular expression/"

// Match reports whether the choice includes the topic.
func (t Topics) Match(topic string) bool {
	if t.Pattern != nil {
		return t.Pattern.MatchString(topic)
	}
	for _, name := range t.Names {
		if name == topic {
			return true
		}
	}
	return false
}

func (t *Topics) format() string { return topicsFormat }

func (t *Topics) set(text string) []Problem {
	if strings.HasPrefix(text, "/") {
		return t.setPattern(text)
	}
	var problems []Problem
	for _, name := range list(text) {
		switch {
		case !isTopic(name):
			problems = append(problems, bad(quote(name)+" is no topic name", topicsFormat, "topics have letters, digits, '.', '_' and '-', at most 249; a pattern stands between slashes")...)
		case t.Match(name):
			problems = append(problems, bad(quote(name)+" stands there twice", topicsFormat, "name each topic once")...)
		default:
			t.Names = append(t.Names, name)
		}
	}
	if len(t.Names) == 0 && problems == nil {
		return bad(quote(text)+" names no topic", topicsFormat, "name at least one topic")
	}
	return problems
}

func (t *Topics) setPattern(text string) []Problem {
	if len(text) < 3 || !strings.HasSuffix(text, "/") {
		return bad(quote(text)+" is no /regular expression/", topicsFormat, "put one slash before and one after it, and nothing else")
	}
	inner := text[1 : len(text)-1]
	if _, err := regexp.Compile(inner); err != nil {
		return bad(quote(text)+" does not compile: "+regexpReason(err), topicsFormat, "see golang.org/s/re2syntax")
	}
	// The inner expression compiled, so wrapping it can only fail by size.
	re, err := regexp.Compile("^(?:" + inner + ")$")
	if err != nil {
		return bad(quote(text)+" does not compile: "+regexpReason(err), topicsFormat, "see golang.org/s/re2syntax")
	}
	t.Pattern = re
	return nil
}

// regexpReason is the reason alone, kept to one line.
func regexpReason(err error) string {
	s := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	return strings.Trim(quote(s), `"`)
}

// isTopic reports whether Kafka would take the name (org.apache.kafka.common.internals.Topic).
func isTopic(name string) bool {
	if name == "" || len(name) > 249 || name == "." || name == ".." {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
	}) < 0
}

// TimeZone is a zone by its IANA name.
type TimeZone struct{ *time.Location }

const zoneFormat = "an IANA time zone like UTC or Asia/Shanghai"

func (z *TimeZone) format() string { return zoneFormat }

func (z *TimeZone) set(text string) []Problem {
	const remedy = "write an area and a city, as in the tz database"
	if strings.EqualFold(text, "local") {
		return bad(quote(text)+" would be the zone of the process", zoneFormat, remedy)
	}
	loc, err := time.LoadLocation(text)
	if err != nil {
		return bad(quote(text)+" is not in the tz database", zoneFormat, remedy)
	}
	z.Location = loc
	return nil
}

// TimeFormat says how the event time is written: unix_ms, unix_s, unix_us,
// rfc3339, or a Go layout.
type TimeFormat string

const timeFormatFormat = "unix_ms, unix_s, unix_us, rfc3339 or a Go layout"

func (f *TimeFormat) format() string { return timeFormatFormat }

func (f *TimeFormat) set(text string) []Problem {
	switch word := strings.ToLower(text); word {
	case "unix_ms", "unix_s", "unix_us", "rfc3339":
		*f = TimeFormat(word)
		return nil
	}
	// A layout is one if it keeps a day apart from others. The day is chosen
	// so that no two of its parts are equal.
	day := time.Date(2031, time.November, 25, 19, 48, 56, 0, time.UTC)
	back, err := time.Parse(text, day.Format(text))
	if err != nil || back.Year() != 2031 || back.Month() != time.November || back.Day() != 25 {
		return bad(quote(text)+" is no layout with a year, a month and a day", timeFormatFormat,
			"write a layout as the reference time looks in it, for example 2006-01-02T15:04:05Z07:00")
	}
	*f = TimeFormat(text)
	return nil
}

// Store says where totals are restored from.
type Store struct {
	Dir string // the directory; "" means the table itself
}

const storeFormat = "starrocks or file:<absolute directory>"

func (s *Store) format() string { return storeFormat }

func (s *Store) set(text string) []Problem {
	if strings.EqualFold(text, "starrocks") {
		*s = Store{}
		return nil
	}
	dir, ok := strings.CutPrefix(text, "file:")
	switch {
	case !ok:
		return bad(quote(text), storeFormat, "use starrocks unless the worker may not read the table")
	case !strings.HasPrefix(dir, "/"):
		return bad(quote(text)+" has no absolute path", storeFormat, "write the path from the root, as in file:/var/lib/rollcall")
	case strings.ContainsRune(dir, 0):
		return bad(quote(text)+" has a NUL byte in its path", storeFormat, "write the path from the root, as in file:/var/lib/rollcall")
	}
	*s = Store{Dir: dir}
	return nil
}
