package config

import (
	"fmt"
	"io"
)

// hidden stands for every secret that is set.
const hidden = "(hidden)"

// Secret is a value that must not be printed. Every way of formatting it shows
// whether it is set and nothing else; only Value returns it.
type Secret struct {
	value string
	file  string
}

// NewSecret returns a secret as if it had come from the environment.
func NewSecret(value string) Secret { return Secret{value: value} }

// Value returns the secret itself. Pass it on, never print it.
func (s Secret) Value() string { return s.value }

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s.value != "" }

// File returns the path the secret was read from, or "" if it was not a file.
// Whoever wants rotation reads it again with ReadSecretFile.
func (s Secret) File() string { return s.file }

// String says whether the secret is set.
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	return hidden
}

// Format is String for every verb, so that no %+v, %#v or %x goes round it.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String, for JSON, YAML and loggers.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON is String as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// ReadSecretFile reads a secret from path the way Load does for a variable
// with _FILE: without one newline at the end. The error names the file, never
// its content.
func ReadSecretFile(readFile func(string) ([]byte, error), path string) (Secret, error) {
	data, err := readFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret file %s: %w", path, err)
	}
	return Secret{value: trimNewline(string(data)), file: path}, nil
}

// trimNewline cuts the one newline that editors and `kubectl create secret
// --from-file` leave; a secret may well end in other white space.
func trimNewline(s string) string {
	if n := len(s); n > 0 && s[n-1] == '\n' {
		s = s[:n-1]
		if n > 1 && s[n-2] == '\r' {
			s = s[:n-2]
		}
	}
	return s
}
