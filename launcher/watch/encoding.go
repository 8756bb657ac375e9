package watch

import (
	"bytes"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// sniffBytes is how much is looked at to tell the encoding of a text without a mark.
const sniffBytes = 64

// utf8Reader reads text as UTF-8: what PowerShell redirects into a file is UTF-16, with
// a byte order mark or, appended to, without one. It never waits for more than it needs
// to tell.
type utf8Reader struct {
	r     io.Reader
	order byte   // of the bytes: 'l' or 'b' UTF-16, '8' as it is, 0 not known yet
	in    []byte // not decoded yet
	out   []byte
	buf   []byte
	high  uint16 // the first half of a pair
	err   error
}

func (u *utf8Reader) Read(p []byte) (int, error) {
	for len(u.out) == 0 {
		switch {
		case u.order == '8' && len(u.in) == 0 && u.err == nil:
			return u.r.Read(p)
		case u.err != nil && u.order != 0:
			return 0, u.err
		case u.err == nil:
			if u.buf == nil {
				u.buf = make([]byte, bufferBytes/2)
			}
			n, err := u.r.Read(u.buf)
			u.in, u.err = append(u.in, u.buf[:n]...), err
		}
		if u.order == 0 {
			if u.order = sniff(u.in, u.err != nil); u.order == 0 {
				continue
			}
			u.in = bytes.TrimPrefix(u.in, []byte(mark(u.order)))
		}
		u.decode()
	}
	n := copy(p, u.out)
	u.out = u.out[n:]
	return n, nil
}

// decode moves what is whole from in to out.
func (u *utf8Reader) decode() {
	u.out = u.out[:0]
	if u.order == '8' {
		u.out, u.in = append(u.out, u.in...), nil
		return
	}
	i := 0
	for ; i+1 < len(u.in); i += 2 {
		c := uint16(u.in[i]) | uint16(u.in[i+1])<<8
		if u.order == 'b' {
			c = c<<8 | c>>8
		}
		switch {
		case u.high != 0:
			u.out = utf8.AppendRune(u.out, utf16.DecodeRune(rune(u.high), rune(c)))
			u.high = 0
		case c >= 0xd800 && c < 0xdc00:
			u.high = c
		default:
			u.out = utf8.AppendRune(u.out, rune(c))
		}
	}
	u.in = append(u.in[:0], u.in[i:]...)
}

// mark is the byte order mark of an encoding.
func mark(order byte) string {
	switch order {
	case 'l':
		return "\xff\xfe"
	case 'b':
		return "\xfe\xff"
	}
	return "\xef\xbb\xbf"
}

// sniff tells the encoding of a text by its beginning; 0: not yet. Of UTF-16 without a
// mark every second byte is zero, as far as it is ASCII, which no other text has.
func sniff(b []byte, all bool) byte {
	for _, order := range []byte{'l', 'b'} {
		if bytes.HasPrefix(b, []byte(mark(order))) {
			return order
		}
	}
	if len(b) < 3 && !all && (len(b) < 2 || b[0] == 0xef || b[0] == 0 || b[1] == 0) {
		return 0
	}
	if len(b) < 2 || b[0] != 0 && b[1] != 0 {
		return '8'
	}
	if len(b) < sniffBytes && !all {
		return 0
	}
	var zero [2]int
	for i, c := range b[:min(len(b), sniffBytes)&^1] {
		if c == 0 {
			zero[i%2]++
		}
	}
	switch most := min(len(b), sniffBytes) / 2; {
	case zero[0] == 0 && zero[1] > most*3/4:
		return 'l'
	case zero[1] == 0 && zero[0] > most*3/4:
		return 'b'
	}
	return '8'
}
