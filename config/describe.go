package config

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
)

// Setting describes one setting.
type Setting struct {
	Name     string // the variable
	Group    string
	Default  string // as it would be written; "" for none
	Required bool
	Secret   bool   // also readable from the file Name_FILE names
	Allowed  string // what it accepts, in words
	Doc      string // what it does; 'quotes' mark code
}

// Describe lists every setting, in the order of the documentation.
func Describe() []Setting {
	var all []Setting
	for _, f := range fields(new(Config)) {
		s := f.Setting
		if show := f.tag.Get("show"); show != "" {
			s.Default = show
		}
		all = append(all, s)
	}
	return all
}

// Value is one setting as it is in effect.
type Value struct {
	Setting Setting
	Value   string // as it would be written; hidden for a secret, "" if not set
	Source  Source
}

// Effective lists every setting with its value and where that came from.
// Secrets are hidden; one from a file shows the file's path.
func (c *Config) Effective() []Value {
	var all []Value
	for _, f := range fields(c) {
		raw := c.raw[f.Name]
		v := Value{Setting: f.Setting, Value: raw.text, Source: raw.source}
		if secret, ok := f.value.Interface().(Secret); ok {
			v.Value = secret.String()
			if raw.source == FromFile {
				v.Value = hidden + " from " + raw.text
			}
		}
		all = append(all, v)
	}
	return all
}

// WriteMarkdown writes the documentation of all settings, docs/settings.md.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# Settings

<!-- Written by "rollcall config --markdown" from the tags in config/config.go. Do not edit. -->

All settings are environment variables. Durations look like ` + "`30s`, `1m30s` or `72h`, sizes like `64MiB` or `500KB`" + `; lists are
separated by commas. An empty variable counts as not set. A secret ` + "`X` may instead be read from the file that `X_FILE`" + ` names.
All problems are reported at once, and a misspelt name is one of them. ` + "`rollcall check` looks without starting, `rollcall config`" + `
shows what is in effect and where it came from.
`)
	about := make(map[string]string)
	root := reflect.TypeFor[Config]()
	for i := range root.NumField() {
		about[root.Field(i).Tag.Get("group")] = root.Field(i).Tag.Get("about")
	}
	group := ""
	for _, s := range Describe() {
		if s.Group != group {
			group = s.Group
			b.WriteString("\n## " + group + "\n\n")
			if about[group] != "" {
				b.WriteString(code(about[group]) + "\n\n")
			}
			b.WriteString("| setting | default | allowed | what it does |\n|---|---|---|---|\n")
		}
		name := "`" + s.Name + "`"
		if s.Secret {
			name += "<br>`" + s.Name + "_FILE`"
		}
		fallback := "–"
		switch {
		case s.Required:
			fallback = "required"
		case s.Default != "":
			fallback = "`" + s.Default + "`"
		}
		allowed := s.Allowed
		if s.Secret {
			allowed = "secret"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, cell(fallback), cell(strings.ReplaceAll(allowed, "<", `\<`)), cell(code(s.Doc)))
	}
	b.WriteString(`
## Traces

Off unless OpenTelemetry's standard variables ask for them: ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`" + ` (a collector's port for HTTP, as
` + "`http://otel-collector:4318`" + `) or ` + "`OTEL_TRACES_EXPORTER=otlp`" + `. Then every load is a span, in it its seal, its attempts with each hop of HTTP, and the questions
for a label's state; every restore is one as well. Only ` + "`http/protobuf`" + ` is spoken. ` + "`OTEL_EXPORTER_OTLP_HEADERS`, `_TIMEOUT`, `_CERTIFICATE`" + `, their
` + "`_TRACES_`" + ` forms, ` + "`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*` and `OTEL_SDK_DISABLED`" + ` mean what
OpenTelemetry's specification says. Wrong ones leave traces off with a line in the log and stop nothing.
`)
	_, err := io.WriteString(w, b.String())
	return err
}

var (
	quoted  = regexp.MustCompile(`'([^']+)'`)
	varName = regexp.MustCompile(`\b[A-Z]+(_[A-Z]+)+\b`)
)

// code turns 'quotes' and the names of settings into code.
func code(text string) string {
	var b strings.Builder
	last := 0
	for _, m := range quoted.FindAllStringIndex(text, -1) {
		b.WriteString(varName.ReplaceAllString(text[last:m[0]], "`$0`"))
		b.WriteString("`" + text[m[0]+1:m[1]-1] + "`")
		last = m[1]
	}
	b.WriteString(varName.ReplaceAllString(text[last:], "`$0`"))
	return b.String()
}

// cell keeps text inside one cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
