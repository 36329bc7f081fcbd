package config

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// What Kubernetes sets for every Service in a namespace (service links): for a
// Service called kafka, KAFKA_SERVICE_HOST, KAFKA_PORT=tcp://… and so on.
var (
	serviceLink      = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	serviceLinkValue = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// unknown looks for variables that begin like ours and are not. One that is
// nearly a setting stops the start, because its author believes it works.
func (l *loader) unknown(cfg *Config) {
	known := make(map[string]bool)
	var names []string
	for _, f := range fields(cfg) {
		names = append(names, f.Name)
		known[f.Name] = true
		if f.Secret {
			names = append(names, f.Name+"_FILE")
			known[f.Name+"_FILE"] = true
		}
	}
	links := ""
	for _, name := range sortedKeys(l.env) {
		if known[name] || !hasOurPrefix(name) {
			continue
		}
		if isServiceLink(name, l.env[name]) {
			links = cmp.Or(links, showName(name))
			continue
		}
		near, sure := nearest(name, names)
		switch {
		case sure:
			l.problem(showName(name), Problem{Found: "there is no such setting", Remedy: "did you mean " + near + "? Otherwise remove it"})
		default:
			l.warn("%s is no setting of this program and is ignored. The nearest is %s.", showName(name), near)
		}
	}
	if links != "" {
		l.warn("Variables of Kubernetes service links (%s and the like) are ignored. Set enableServiceLinks: false in the pod to be rid of them.", links)
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,80}$`)

// showName is a variable's name in a message: any byte but '=' may be in one.
func showName(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return quote(name)
}

// hasOurPrefix reports whether a variable looks like one of ours. The proxy
// variable is everybody's.
func hasOurPrefix(name string) bool {
	if name == "HTTP_PROXY" {
		return false
	}
	for _, prefix := range []string{
		"KAFKA_", "DISCOVERY_", "EVENT_TIME_", "AGGREGATE_", "ALLOWED_", "MAX_FUTURE_", "STARROCKS_", "TABLE_", "FLUSH_", "BUFFER_",
		"LOAD_", "CHECKPOINT_", "PROGRAM_", "DEADLETTER_", "HTTP_", "STARTUP_", "SHUTDOWN_", "LOG_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || (strings.HasSuffix(name, "_PORT") && serviceLinkValue.MatchString(value))
}

// nearest is the setting most like name. It is sure if at most two letters
// differ or if one name is the beginning of the other, at an underscore.
func nearest(name string, names []string) (near string, sure bool) {
	least := 1 << 30
	for _, candidate := range names {
		if d := distance(name, candidate); d < least {
			near, least = candidate, d
		}
	}
	if least <= 2 {
		return near, true
	}
	longest := -1
	for _, candidate := range names {
		if !strings.HasPrefix(candidate, name+"_") && !strings.HasPrefix(name, candidate+"_") {
			continue
		}
		if n := min(len(name), len(candidate)); n > longest {
			near, longest, sure = candidate, n, true
		}
	}
	return near, sure
}

// distance is the number of letters to insert, remove or replace to get from
// one word to the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
