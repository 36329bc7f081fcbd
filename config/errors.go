package config

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with one setting. It never holds a secret.
type Problem struct {
	Var     string // the variable
	Found   string // what was found, in words or quoted
	Allowed string // what would be right; may be empty where Remedy says it
	Remedy  string // what to do
}

// String is the problem on one line.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Var + ": " + p.Found)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// Error is every problem found in one look at the environment.
type Error struct {
	Problems []Problem
}

// Error lists the problems, one line each, after a line that counts them.
func (e *Error) Error() string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		b.WriteString("1 problem in the settings:")
	} else {
		fmt.Fprintf(&b, "%d problems in the settings:", len(e.Problems))
	}
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// quote shows a value in a message: escaped, of bounded length, and without
// what stands before an '@', where people put passwords into addresses.
func quote(v string) string {
	const most = 80
	if i := strings.LastIndexByte(v, '@'); i >= 0 {
		v = "…" + v[i:]
	}
	if len(v) > most {
		v = strings.ToValidUTF8(v[:most], "") + "…"
	}
	return fmt.Sprintf("%q", v)
}

// bad is a problem of the variable being parsed; the loader adds its name.
func bad(found, allowed, remedy string) []Problem {
	return []Problem{{Found: found, Allowed: allowed, Remedy: remedy}}
}
