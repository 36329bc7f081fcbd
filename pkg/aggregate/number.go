package aggregate

import "math"

// parseID reads a decimal integer 0…2^64−1: digits only.
func parseID(text []byte) (uint64, bool) {
	if len(text) == 0 {
		return 0, false
	}
	var v uint64
	for _, c := range text {
		c -= '0'
		if c > 9 || v > math.MaxUint64/10 {
			return 0, false
		}
		v *= 10
		if v > math.MaxUint64-uint64(c) {
			return 0, false
		}
		v += uint64(c)
	}
	return v, true
}

// plain reads what most numbers are: digits with at most scale of them behind a point, all of which fit. ok is false for all others.
func plain(text []byte, scale int) (n int64, ok bool) {
	if len(text)+scale > 18 || scale < 0 {
		return 0, false
	}
	point := len(text) // where the digits after the point begin
	for i, c := range text {
		if c == '.' && point == len(text) && i > 0 && i+1 < len(text) {
			point = i + 1
			continue
		}
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	zeros := scale - (len(text) - point)
	for range zeros {
		n *= 10
	}
	return n, zeros >= 0 && len(text) > 0
}

// decimal is a number as written: sign, digits, exponent. The digits stay in the text.
type decimal struct {
	neg         bool
	whole, frac []byte // digits before and after the point
	exp         int
}

// maxExp bounds exponents; what is beyond is out of range whatever the digits, unless they are all zero.
const maxExp = 1 << 40

// parseDecimal reads -?digits(.digits)?([eE][+-]?digits)?: a JSON number, or the same with leading zeros in a string.
func parseDecimal(text []byte) (d decimal, ok bool) {
	if len(text) > 0 && text[0] == '-' {
		d.neg = true
		text = text[1:]
	}
	d.whole, text = takeDigits(text)
	if len(d.whole) == 0 {
		return d, false
	}
	if len(text) > 0 && text[0] == '.' {
		d.frac, text = takeDigits(text[1:])
		if len(d.frac) == 0 {
			return d, false
		}
	}
	if len(text) > 0 && text[0]|0x20 == 'e' {
		text = text[1:]
		negExp := false
		if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			negExp = text[0] == '-'
			text = text[1:]
		}
		var digits []byte
		digits, text = takeDigits(text)
		if len(digits) == 0 {
			return d, false
		}
		for _, c := range digits {
			d.exp = min(d.exp*10+int(c-'0'), maxExp)
		}
		if negExp {
			d.exp = -d.exp
		}
	}
	return d, len(text) == 0
}

func takeDigits(text []byte) (digits, rest []byte) {
	n := 0
	for n < len(text) && text[n]-'0' <= 9 {
		n++
	}
	return text[:n], text[n:]
}

func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i] - '0'
	}
	return d.frac[i-len(d.whole)] - '0'
}

// scaled is d × 10^scale, cut to an integer (towards zero). exact says that nothing but zeros was cut, fits that it is within int64;
// v is 0 unless it fits. d.neg is false afterwards for every form of zero.
func (d *decimal) scaled(scale int) (v int64, exact, fits bool) {
	n := len(d.whole) + len(d.frac)
	first, last := 0, n-1
	for first < n && d.digit(first) == 0 {
		first++
	}
	if first == n {
		d.neg = false
		return 0, true, true
	}
	for d.digit(last) == 0 {
		last--
	}
	zeros := d.exp - len(d.frac) + scale + n - 1 - last // to append after the last digit, or digits to cut
	exact = zeros >= 0
	if !exact {
		last += zeros // before first if nothing is left
		zeros = 0
	}
	if last-first+1+zeros > 19 {
		return 0, exact, false
	}
	var abs uint64 // up to 19 digits fit
	for i := first; i <= last; i++ {
		abs = abs*10 + uint64(d.digit(i))
	}
	if abs != 0 {
		for range zeros {
			abs *= 10
		}
	}
	switch {
	case d.neg && abs <= 1<<63:
		return -int64(abs), exact, true
	case !d.neg && abs <= math.MaxInt64:
		return int64(abs), exact, true
	default:
		return 0, exact, false
	}
}

// addSaturating is a+b for a, b ≥ 0, at most 2^63−1.
func addSaturating(a, b int64) (sum int64, saturated bool) {
	if a > math.MaxInt64-b {
		return math.MaxInt64, true
	}
	return a + b, false
}
