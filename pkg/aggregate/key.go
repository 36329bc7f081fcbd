package aggregate

import "unicode/utf8"

// A packed key is the dimensions one after the other, each behind its length in one byte: unambiguous whatever the values are.

func packDim(text string) string { return string([]byte{byte(len(text))}) + text }

// unpackDims cuts the n dimensions out of a packed key; they share its memory.
func unpackDims(key string, n int) []string {
	dims := make([]string, n)
	for i := range dims {
		end := 1 + int(key[0])
		dims[i], key = key[1:end], key[end:]
	}
	return dims
}

// cut shortens valid UTF-8 to maxDimBytes on a rune boundary.
func cut(text []byte) []byte {
	n := maxDimBytes
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
