package starrockstest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokEnd tokenKind = iota + 1
	tokWord
	tokQuoted // `identifier`
	tokString
	tokNumber
	tokPunct
)

// token is one word of a statement; pos and end are byte offsets into it.
type token struct {
	kind     tokenKind
	text     string
	pos, end int
}

// is reports whether the token is this keyword (any case, never a quoted identifier) or punctuation.
func (t token) is(word string) bool {
	return (t.kind == tokWord || t.kind == tokPunct) && strings.EqualFold(t.text, word)
}

// lex splits a statement into tokens; comments are dropped and the list ends with tokEnd.
func lex(sql string) ([]token, error) {
	var out []token
	for i := 0; i < len(sql); {
		r, size := utf8.DecodeRuneInString(sql[i:])
		switch {
		case unicode.IsSpace(r):
			i += size
		case strings.HasPrefix(sql[i:], "--"), r == '#':
			i = skipPast(sql, i, "\n")
		case strings.HasPrefix(sql[i:], "/*"):
			i = skipPast(sql, i+2, "*/")
		case r == '\'' || r == '"' || r == '`':
			text, end, err := lexQuoted(sql, i)
			if err != nil {
				return nil, err
			}
			k := tokString
			if r == '`' {
				k = tokQuoted
			}
			out = append(out, token{k, text, i, end})
			i = end
		case r >= '0' && r <= '9':
			end := lexNumber(sql, i)
			out = append(out, token{tokNumber, sql[i:end], i, end})
			i = end
		case r == '_' || r == '@' || r == '$' || unicode.IsLetter(r):
			end := i + size
			for end < len(sql) {
				c, n := utf8.DecodeRuneInString(sql[end:])
				if c != '_' && c != '@' && c != '$' && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
					break
				}
				end += n
			}
			out = append(out, token{tokWord, sql[i:end], i, end})
			i = end
		default:
			end := i + size
			if i+2 <= len(sql) {
				switch sql[i : i+2] {
				case "<=", ">=", "<>", "!=", "&&", "||", "->":
					end = i + 2
				}
			}
			if strings.HasPrefix(sql[i:], "<=>") {
				end = i + 3
			}
			out = append(out, token{tokPunct, sql[i:end], i, end})
			i = end
		}
	}
	return append(out, token{kind: tokEnd, pos: len(sql), end: len(sql)}), nil
}

func skipPast(sql string, from int, mark string) int {
	if n := strings.Index(sql[from:], mark); n >= 0 {
		return from + n + len(mark)
	}
	return len(sql)
}

func lexNumber(sql string, i int) int {
	for i < len(sql) {
		c := sql[i]
		exponent := (c == '+' || c == '-') && (sql[i-1] == 'e' || sql[i-1] == 'E')
		if (c < '0' || c > '9') && c != '.' && c != 'e' && c != 'E' && !exponent {
			break
		}
		i++
	}
	return i
}

// lexQuoted reads a quoted text; a doubled quote is the quote, and a backslash escapes except between back-ticks.
func lexQuoted(sql string, start int) (text string, end int, err error) {
	q := sql[start]
	var sb strings.Builder
	for i := start + 1; i < len(sql); i++ {
		c := sql[i]
		switch {
		case c == q && i+1 < len(sql) && sql[i+1] == q:
			sb.WriteByte(q)
			i++
		case c == q:
			return sb.String(), i + 1, nil
		case c == '\\' && q != '`' && i+1 < len(sql):
			i++
			sb.WriteString(unescape(sql[i]))
		default:
			sb.WriteByte(c)
		}
	}
	return "", 0, fmt.Errorf("unterminated %c at offset %d", q, start)
}

func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '0':
		return "\x00"
	case 'b':
		return "\b"
	case 'Z':
		return "\x1a"
	case '%', '_':
		return "\\" + string(c) // MySQL leaves these two for LIKE.
	}
	return string(c)
}

// quoteName back-ticks an identifier; quoteText makes a string literal.
func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

func quoteText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
