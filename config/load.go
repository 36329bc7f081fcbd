package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Load reads the settings from environ, a list of NAME=value, and the files
// that _FILE variables and TLS settings name from readFile. It returns a
// checked Config, or an *Error with every problem there is.
//
// An empty variable counts as not set, because a manifest cannot always leave
// one out. White space around a value is dropped, except in secrets.
func Load(environ []string, readFile func(string) ([]byte, error)) (*Config, error) {
	cfg := &Config{raw: make(map[string]rawValue)}
	l := loader{cfg: cfg, env: envMap(environ), readFile: readFile, failed: make(map[string]bool)}
	for _, f := range fields(cfg) {
		l.load(f)
	}
	l.unknown(cfg)
	l.check()
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	return cfg, nil
}

// FromOS is Load for this process: its environment, its files, and its host
// name where the environment has none.
func FromOS() (*Config, error) {
	environ := os.Environ()
	if host, err := os.Hostname(); err == nil {
		environ = append(environ, "HOSTNAME="+host) // the first one of a name counts
	}
	return Load(environ, os.ReadFile)
}

// Source is where a value came from.
type Source string

// The sources.
const (
	FromDefault     Source = "default"
	FromEnvironment Source = "environment"
	FromFile        Source = "file"
)

// rawValue is the text a setting was read from.
type rawValue struct {
	text   string // never a secret
	source Source
}

// loader collects the problems of one Load.
type loader struct {
	cfg      *Config
	env      map[string]string
	readFile func(string) ([]byte, error)
	problems []Problem
	failed   map[string]bool // variables with a problem; checks across settings leave them alone
}

// envMap splits NAME=value. Of two of a name the first counts, as in os.Getenv.
func envMap(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if _, seen := env[name]; ok && !seen && name != "" {
			env[name] = value
		}
	}
	return env
}

// field is one setting and the place its value goes to.
type field struct {
	Setting
	tag   reflect.StructTag
	value reflect.Value
}

// fields walks the tags: the settings in the order of Config's groups.
func fields(cfg *Config) []field {
	var all []field
	root := reflect.ValueOf(cfg).Elem()
	for i := range root.NumField() {
		group := root.Type().Field(i)
		title, ok := group.Tag.Lookup("group")
		if !ok {
			continue
		}
		for j := range group.Type.NumField() {
			f := group.Type.Field(j)
			v := root.Field(i).Field(j)
			s := Setting{
				Name:     group.Tag.Get("envPrefix") + f.Tag.Get("env"),
				Group:    title,
				Default:  f.Tag.Get("envDefault"),
				Required: f.Tag.Get("required") == "true",
				Secret:   v.Type() == reflect.TypeFor[Secret](),
				Doc:      f.Tag.Get("doc"),
				Allowed:  allowed(f.Tag, v),
			}
			all = append(all, field{Setting: s, tag: f.Tag, value: v})
		}
	}
	return all
}

// load reads one setting. A problem leaves its field at the zero value.
func (l *loader) load(f field) {
	if f.Secret {
		l.loadSecret(f)
		return
	}
	text, source := strings.TrimSpace(l.env[f.Name]), FromEnvironment
	if text == "" {
		text, source = f.Default, FromDefault
	}
	l.cfg.raw[f.Name] = rawValue{text: text, source: source}
	if text == "" {
		if f.Required {
			l.problem(f.Name, Problem{Found: "not set", Allowed: f.Allowed, Remedy: "set it; there is no default"})
		}
		return
	}
	for _, p := range setField(f, text) {
		l.problem(f.Name, p)
	}
}

// loadSecret reads a secret from its variable or from the file its _FILE twin
// names. Nothing of the value gets into a problem.
func (l *loader) loadSecret(f field) {
	twin := f.Name + "_FILE"
	value, path := l.env[f.Name], strings.TrimSpace(l.env[twin])
	l.cfg.raw[f.Name] = rawValue{source: FromDefault}
	switch {
	case value != "" && path != "":
		l.problem(f.Name, Problem{Found: "set, and " + twin + " too", Allowed: "one of the two", Remedy: "remove one of them"})
	case path != "":
		secret, err := ReadSecretFile(l.readFile, path)
		if err != nil {
			l.problem(twin, Problem{Found: quote(path) + " cannot be read: " + fileReason(err), Allowed: "a readable file", Remedy: "mount the secret there or correct the path"})
			return
		}
		f.value.Set(reflect.ValueOf(secret))
		l.cfg.raw[f.Name] = rawValue{text: path, source: FromFile}
	case value != "":
		f.value.Set(reflect.ValueOf(Secret{value: value}))
		l.cfg.raw[f.Name] = rawValue{source: FromEnvironment}
	}
}

// fileReason is the cause of a failed read alone, on one line.
func fileReason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return strings.Trim(quote(err.Error()), `"`)
}

func (l *loader) problem(name string, p Problem) {
	p.Var = name
	l.failed[name] = true
	l.problems = append(l.problems, p)
}

func (l *loader) warn(format string, args ...any) {
	l.cfg.Warnings = append(l.cfg.Warnings, fmt.Sprintf(format, args...))
}

// setField parses text into the field by its type and tags.
func setField(f field, text string) []Problem {
	if s, ok := f.value.Addr().Interface().(setter); ok {
		if problems := s.set(text); len(problems) > 0 {
			return problems
		}
		return checkRange(f, text)
	}
	if zero := f.tag.Get("zero"); zero != "" && strings.EqualFold(text, zero) {
		return nil
	}
	switch f.value.Interface().(type) {
	case string:
		return setString(f, text)
	case bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return bad(quote(text)+" is neither", f.Allowed, "write one of them")
		}
		f.value.SetBool(b)
		return nil
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return bad(quote(text)+" is no whole number", f.Allowed, "write digits only")
		}
		f.value.SetInt(int64(n))
	case float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) {
			return bad(quote(text)+" is no number", f.Allowed, "write for example 0.5")
		}
		f.value.SetFloat(x)
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return bad(quote(text)+" is no duration", f.Allowed, "give every number a unit of ms, s, m or h, as in 1m30s or 72h")
		}
		f.value.SetInt(int64(d))
	default:
		panic("config: no parser for the type of " + f.Name)
	}
	return checkRange(f, text)
}

// setString sets a string, reduced to one of the words its tag allows.
func setString(f field, text string) []Problem {
	words := f.tag.Get("oneof")
	if words == "" {
		f.value.SetString(text)
		return nil
	}
	for word := range strings.FieldsSeq(words) {
		if strings.EqualFold(word, text) {
			f.value.SetString(word)
			return nil
		}
	}
	return bad(quote(text), f.Allowed, "write one of these words")
}

// checkRange compares a number, a duration or a size with its min and max.
func checkRange(f field, text string) []Problem {
	compare := func(tag string) int {
		bound, ok := f.tag.Lookup(tag)
		if !ok {
			return 0
		}
		limit := reflect.New(f.value.Type()).Elem()
		probe := field{Setting: f.Setting, value: limit}
		if problems := setField(probe, bound); len(problems) > 0 {
			panic("config: the tags of " + f.Name + " do not parse")
		}
		x, y := number(f.value), number(limit)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	switch {
	case compare("min") < 0:
		return bad(quote(text)+" is too little", f.Allowed, "write at least "+f.tag.Get("min"))
	case compare("max") > 0:
		return bad(quote(text)+" is too much", f.Allowed, "write at most "+f.tag.Get("max"))
	}
	return nil
}

// number is a numeric field as a float, exact enough to compare with a bound.
func number(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	if v.CanInt() {
		return float64(v.Int())
	}
	return 0
}

// allowed says what a setting accepts, from its tags and its type.
func allowed(tag reflect.StructTag, v reflect.Value) string {
	if f := tag.Get("format"); f != "" {
		return f
	}
	if words := tag.Get("oneof"); words != "" {
		return strings.Join(strings.Fields(words), ", ")
	}
	var text string
	switch x := v.Addr().Interface().(type) {
	case setter:
		text = x.format()
	case *bool:
		return "true or false"
	case *int:
		text = "a whole number"
	case *float64:
		text = "a number"
	case *time.Duration:
		text = "a duration"
	default:
		return "text"
	}
	if least, most := tag.Get("min"), tag.Get("max"); least != "" || most != "" {
		text += " from " + least + " to " + most
	}
	if zero := tag.Get("zero"); zero != "" {
		text += ", or " + zero
	}
	return text
}

var notInLabel = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// workerName reduces a host name to what a StarRocks label may hold
// (sql/analyzer/FeNameFormat.java), with room for what the label adds.
func workerName(host string) string {
	name := notInLabel.ReplaceAllString(host, "-")
	if len(name) > 63 {
		name = name[len(name)-63:] // the end tells pods of one Deployment apart
	}
	if name = strings.Trim(name, "-"); name == "" {
		return "rollcall"
	}
	return name
}
