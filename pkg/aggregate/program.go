package aggregate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// decoderVersion is part of the program's identity: raise it with every change that may decode the same bytes differently.
	decoderVersion = "json/1"

	maxMeasures  = 64 // a row keeps one bit per measure
	maxPathDepth = 32
	maxScale     = 9
)

// Program is a checked Config, ready to use. It is immutable and may be shared between goroutines.
type Program struct {
	cfg  Config
	text string
	id   string

	root  *node // of the fields to decode
	slots int
	time  int // slot of the event time, −1 for the record's timestamp
	dims  []int
	plan  []step
	ints  int
	sets  int

	format     timeFormat
	latenessMs int64
	skewMs     int64
	folded     string // the packed key of FoldedKey in every dimension
}

// step is what one measure does with a record.
type step struct {
	kind  Kind
	scale int
	slot  int // of the field, −1 for count
	cell  int // index among the row's ints or sets
	same  int // an earlier step that reads the same number, −1 if none does
}

// New checks the configuration and returns its program. The error names every problem found and wraps ErrConfig.
func New(cfg Config) (*Program, error) {
	cfg.Dimensions = slices.Clone(cfg.Dimensions)
	cfg.Measures = slices.Clone(cfg.Measures)
	format, err := check(cfg)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.TimeField == "" {
		cfg.TimeFormat = "" // not used, so not part of the identity
	}
	p := &Program{
		cfg:        cfg,
		root:       &node{slot: -1},
		time:       -1,
		format:     format,
		latenessMs: cfg.Lateness.Milliseconds(),
		skewMs:     cfg.FutureSkew.Milliseconds(),
	}
	p.compile()
	p.text = canonical(cfg)
	sum := sha256.Sum256([]byte(p.text))
	p.id = hex.EncodeToString(sum[:4])
	return p, nil
}

// compile gives every configured field a slot and every measure a cell.
func (p *Program) compile() {
	var paths []string
	if p.cfg.TimeField != "" {
		paths = append(paths, p.cfg.TimeField)
	}
	for _, d := range p.cfg.Dimensions {
		paths = append(paths, d.Path)
	}
	for _, m := range p.cfg.Measures {
		if m.Kind != Count {
			paths = append(paths, m.Field)
		}
	}
	for _, path := range paths {
		p.root.add(strings.Split(path, "."))
	}
	p.slots = p.root.number(0)
	if p.cfg.TimeField != "" {
		p.time = p.root.find(p.cfg.TimeField)
	}
	for _, d := range p.cfg.Dimensions {
		p.dims = append(p.dims, p.root.find(d.Path))
		p.folded += packDim(FoldedKey)
	}
	for _, m := range p.cfg.Measures {
		s := step{kind: m.Kind, scale: m.Scale, slot: -1, same: -1}
		if m.Kind != Count {
			s.slot = p.root.find(m.Field)
		}
		if m.Kind.IsSet() {
			s.cell = p.sets
			p.sets++
		} else {
			s.cell = p.ints
			p.ints++
			s.same = slices.IndexFunc(p.plan, func(t step) bool { return s.slot >= 0 && t.slot == s.slot && t.scale == s.scale && !t.kind.IsSet() })
		}
		p.plan = append(p.plan, s)
	}
}

// ID is 8 hex digits over everything that maps a record to rows: the whole Config and the decoder's version. The order of dimensions
// and of measures is not part of it, since columns go by name.
func (p *Program) ID() string { return p.id }

// Text is the canonical text ID is made of, for people who want to know what changed.
func (p *Program) Text() string { return p.text }

// Measures are the configured measures in order. The caller must not change them.
func (p *Program) Measures() []Measure { return p.cfg.Measures }

// Dimensions are the configured dimensions in order. The caller must not change them.
func (p *Program) Dimensions() []Dimension { return p.cfg.Dimensions }

// Location is the time zone of the days.
func (p *Program) Location() *time.Location { return p.cfg.Location }

// OpenFrom is the first day that can still change once the watermark stands at watermarkMs: the day of the oldest event that would
// not be late. What a restore has to read are the rows from this day on.
func (p *Program) OpenFrom(watermarkMs int64) Day {
	return firstDayFrom(p.cfg.Location, watermarkMs-p.latenessMs)
}

func canonical(cfg Config) string {
	dims := slices.SortedFunc(slices.Values(cfg.Dimensions), func(a, b Dimension) int { return cmp.Compare(a.Name, b.Name) })
	measures := slices.SortedFunc(slices.Values(cfg.Measures), func(a, b Measure) int { return cmp.Compare(a.Name, b.Name) })
	var b strings.Builder
	fmt.Fprintf(&b, "decoder %s\n", decoderVersion)
	fmt.Fprintf(&b, "time %q %q\n", cfg.TimeField, cfg.TimeFormat)
	for _, d := range dims {
		fmt.Fprintf(&b, "dimension %q %q\n", d.Name, d.Path)
	}
	for _, m := range measures {
		fmt.Fprintf(&b, "measure %q %s %q %d\n", m.Name, m.Kind, m.Field, m.Scale)
	}
	fmt.Fprintf(&b, "zone %q\nlateness %dms\nskew %dms\nkeys %d\nisolation %q\n",
		cfg.Location.String(), cfg.Lateness.Milliseconds(), cfg.FutureSkew.Milliseconds(), cfg.MaxKeys, cfg.Isolation)
	return b.String()
}

// check looks for everything that is wrong, and gives the time format on the way.
func check(cfg Config) (timeFormat, error) {
	var (
		errs   []error
		format timeFormat
	)
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case cfg.Location == nil:
		problem("a time zone is required")
	case cfg.Location.String() == "Local":
		problem("the time zone must have a name; the process's own is never used")
	}
	if cfg.Lateness < 0 || cfg.FutureSkew < 0 {
		problem("lateness %s and future skew %s must not be negative", cfg.Lateness, cfg.FutureSkew)
	}
	if cfg.MaxKeys < 1 {
		problem("the number of keys per day must be at least 1, not %d", cfg.MaxKeys)
	}
	if cfg.TimeField != "" {
		var err error
		format, err = newTimeFormat(cfg.TimeFormat)
		errs = append(errs, err, checkPath("event time", cfg.TimeField))
	}
	if len(cfg.Measures) == 0 || len(cfg.Measures) > maxMeasures {
		problem("1 to %d measures, not %d", maxMeasures, len(cfg.Measures))
	}
	names := map[string]bool{}
	checkName := func(what, name string) {
		lower := strings.ToLower(name) // StarRocks does not tell column names apart by case
		switch {
		case name == "":
			problem("a %s has no name", what)
		case lower == "dt" || strings.HasPrefix(lower, "rollcall_"):
			problem("%s %q: the name is reserved", what, name)
		case names[lower]:
			problem("%s %q: the name is used twice", what, name)
		}
		names[lower] = true
	}
	for _, d := range cfg.Dimensions {
		checkName("dimension", d.Name)
		errs = append(errs, checkPath("dimension "+d.Name, d.Path))
	}
	for _, m := range cfg.Measures {
		checkName("measure", m.Name)
		errs = append(errs, checkMeasure(m))
	}
	return format, errors.Join(errs...)
}

func checkMeasure(m Measure) error {
	what := "measure " + m.Name
	switch m.Kind {
	case Count:
		if m.Field != "" || m.Scale != 0 {
			return fmt.Errorf("%s: count has neither field nor scale", what)
		}
		return nil
	case Distinct, DistinctHash:
		if m.Scale != 0 {
			return fmt.Errorf("%s: %s has no scale", what, m.Kind)
		}
	case Sum, Min, Max:
		if m.Scale < 0 || m.Scale > maxScale {
			return fmt.Errorf("%s: scale 0 to %d, not %d", what, maxScale, m.Scale)
		}
	default:
		return fmt.Errorf("%s: unknown kind %d", what, m.Kind)
	}
	return checkPath(what, m.Field)
}

func checkPath(what, path string) error {
	parts := strings.Split(path, ".")
	switch {
	case path == "" || slices.Contains(parts, ""):
		return fmt.Errorf("%s: path %q has an empty part", what, path)
	case len(parts) > maxPathDepth:
		return fmt.Errorf("%s: path of %d parts, at most %d are allowed", what, len(parts), maxPathDepth)
	case !utf8.ValidString(path) || strings.ContainsRune(path, utf8.RuneError):
		return fmt.Errorf("%s: path %q is not valid UTF-8", what, path) // it could match keys that were not, either
	}
	return nil
}
