package watch

import "bytes"

// message is one thing a library said: an NCCL message with its prefix taken
// off, or a whole line that has none.
type message struct {
	proc  *proc  // who said it; nil where the line does not tell
	rank  int    // rank of a launcher's or torch's tag; -1 unknown
	dev   int    // the CUDA device of NCCL's prefix, -1 unknown: tells GPUs of one process apart
	warn  bool   // NCCL WARN
	nccl  bool   // an NCCL prefix was there
	clean bool   // the prefix stood at the start of the line: its host can be trusted
	text  []byte // the message
	arg   []byte // what follows the pattern's text
	raw   []byte // the line
}

// segment is where one NCCL prefix stands in a line. Several processes that
// write one file at once overwrite each other's bytes, so one line may hold
// several, each cut off where the next begins.
type segment struct {
	start, text     int // of the prefix, and of the message behind it
	host            []byte
	pid             uint32
	dev             int
	warn, hasPrefix bool
	clean           bool
	stamped         bool // a time stamp or the end of a line stands before the host without a space
}

var ncclMark = []byte("NCCL ")

// segments appends the NCCL messages of line b; first is where the first
// "NCCL " stands, or -1 where that is not known.
func segments(dst []segment, b []byte, first int) []segment {
	for at := 0; at < len(b); {
		i := first
		if first < 0 {
			i = ncclAt(b[at:])
			if i < 0 {
				break
			}
			i += at
		}
		first = -1
		at = i + len(ncclMark)
		rest := b[at:]
		warn := false
		switch {
		case bytes.HasPrefix(rest, []byte("INFO ")):
			at += 5
		case bytes.HasPrefix(rest, []byte("WARN ")):
			warn = true
			at += 5
		case bytes.HasPrefix(rest, []byte("TRACE ")):
			at += 6
		case bytes.HasPrefix(rest, []byte("CALL ")):
			at += 5
		default:
			continue
		}
		floor := 0
		if len(dst) > 0 {
			floor = dst[len(dst)-1].text
		}
		s := segment{start: i, text: at, warn: warn}
		s.prefix(b, floor, i)
		s.clean = s.hasPrefix && (s.stamped || len(dst) == 0 && cleanStart(b[:s.start]) || begunByExport(b[:s.start]))
		dst = append(dst, s)
	}
	return dst
}

// oldSegment finds the prefix of NCCL 2.2 and older, which lacks the library's name:
// 'n1:10:11 [0] INFO …', 'n1:10:11 [0] include/socket.h:360 WARN …'.
func oldSegment(b []byte) (segment, bool) {
	for _, level := range []string{"INFO ", "WARN "} {
		i := bytes.Index(b, []byte(level))
		if i < len("h:1:2 [0] ") || b[i-1] != ' ' {
			continue
		}
		s := segment{start: i, text: i + len(level), warn: level == "WARN "}
		s.prefix(b, 0, i)
		if s.hasPrefix {
			s.clean = s.stamped || cleanStart(b[:s.start])
			return s, true
		}
	}
	return segment{}, false
}

// prefix reads 'host:pid:tid [dev] [file:line [(func)]] ' backwards from the
// level word at end.
func (s *segment) prefix(b []byte, floor, end int) {
	p := b[floor:end]
	for {
		// "] " closes the device; a WARN has file, line and function behind it.
		i := len(p) - 2
		for i >= 0 && (p[i] != ']' || p[i+1] != ' ') {
			i--
		}
		if i < 0 {
			return
		}
		open := i - 1
		for open >= 0 && (p[open] >= '0' && p[open] <= '9' || p[open] == '-') {
			open--
		}
		if open < 1 || open == i-1 || p[open] != '[' || p[open-1] != ' ' {
			p = p[:i]
			continue
		}
		tid := digitsBefore(p, open-1)
		if tid == open-1 || tid < 1 || p[tid-1] != ':' {
			p = p[:i]
			continue
		}
		pid := digitsBefore(p, tid-1)
		if pid == tid-1 || pid < 1 || p[pid-1] != ':' {
			p = p[:i]
			continue
		}
		host := pid - 1
		if host > 1 && p[host-1] == '>' {
			// Somebody put '<cluster>' in place of the name.
			if open := bytes.LastIndexByte(p[:host], '<'); open >= 0 && host-open < 64 && bytes.IndexByte(p[open:host], ' ') < 0 {
				host = open
			}
		}
		for host > 0 && isHostByte(p[host-1]) {
			host--
		}
		if host == pid-1 {
			return
		}
		n, more := leadingInt(p[pid : tid-1])
		if n < 0 || len(more) > 0 {
			return
		}
		if n := max(gluedStamp(p[:host], p[host:pid-1]), escapedLineEnd(p[:host], p[host:pid-1])); n > 0 {
			host += n
			s.stamped = true
		}
		s.start, s.host, s.pid, s.hasPrefix = floor+host, p[host:pid-1], uint32(n), true
		s.dev, _ = leadingInt(p[open+1 : i])
		return
	}
}

// gluedStamp returns how many bytes of host belong to a time stamp that a log
// service wrote before it without a space: '2025-05-16T16:39:51.208-07:00node1'
// and '…16:39:51.208Znode1'.
func gluedStamp(before, host []byte) int {
	two := func(b []byte) bool { return len(b) >= 2 && isDigit(b[0]) && isDigit(b[1]) }
	n := len(before)
	if n < len("16:39:") || before[n-1] != ':' || !two(before[n-3:]) || !two(host) {
		return 0
	}
	switch before[n-4] {
	case '+', '-':
		// The hours of the offset; a time stands before it.
		if len(host) > 2 && n > 8 && isDigit(before[n-5]) && bytes.IndexByte(before[max(0, n-16):n-4], ':') >= 0 {
			return 2
		}
	case ':':
		i := 2
		if i < len(host) && host[i] == '.' {
			for i++; i < len(host) && isDigit(host[i]); i++ {
			}
		}
		if two(before[n-6:]) && i+1 < len(host) && host[i] == 'Z' {
			return i + 1
		}
	}
	return 0
}

// escapedLineEnd returns how many bytes of host belong to a line end that an export
// wrote as two characters or more: 'n1:… NCCL INFO text\nn1:… NCCL INFO text' in JSON.
func escapedLineEnd(before, host []byte) int {
	if len(before) == 0 || before[len(before)-1] != '\\' || len(host) < 2 {
		return 0
	}
	switch host[0] {
	case 'n', 'r', 't':
		return 1
	case 'u':
		if len(host) > 5 && string(host[1:4]) == "000" {
			return 5
		}
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digitsBefore returns where the digits that end at end begin.
func digitsBefore(p []byte, end int) int {
	i := end
	for i > 0 && p[i-1] >= '0' && p[i-1] <= '9' {
		i--
	}
	return i
}

func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// cleanStart reports whether what stands before a prefix is nothing, or ends
// as a launcher's tag, a time stamp or an indentation does, and not in the
// middle of another line.
func cleanStart(before []byte) bool {
	if len(before) == 0 {
		return true
	}
	switch before[len(before)-1] {
	case ' ', '\t', ')', ']', '>', '|', '"', '\'', ',', ';', '=':
		return true
	case ':':
		// "[1,0]<stdout>:" and "[rank3]:", but not the pid of a cut prefix.
		return len(before) > 1 && (before[len(before)-2] == '>' || before[len(before)-2] == ']')
	}
	return false
}

// begunByExport reports whether a line begins behind before, which an export put there:
// in quotes of its own, or behind an HTML break.
func begunByExport(before []byte) bool {
	return bytes.HasSuffix(before, []byte{'"'}) || bytes.HasSuffix(before, []byte("<br>")) || bytes.HasSuffix(before, []byte("<br/>")) || bytes.HasSuffix(before, []byte("<br />"))
}

// line reads one cleaned line that holds an anchor.
func (st *state) line(b []byte, first int) {
	st.lines++
	st.runs.lines++
	st.read(b, first)
	st.runs.settle()
}

// read reads a line, also one that was kept.
func (st *state) read(b []byte, first int) {
	if first >= 0 && st.quick(b, first) {
		return
	}
	st.segs = segments(st.segs[:0], b, first)
	if len(st.segs) == 0 {
		if s, ok := oldSegment(b); ok {
			st.segs = append(st.segs, s)
		} else {
			st.bare(b, b)
			return
		}
	}
	if head := b[:st.segs[0].start]; len(head) > 16 {
		// The rest of a line that another process's line ran over.
		st.bare(head, b)
	}
	for i := range st.segs {
		s := &st.segs[i]
		end := len(b)
		if i+1 < len(st.segs) {
			end = st.before(b, s.text, &st.segs[i+1])
		}
		if end < s.text || !s.hasPrefix && isQuoted(b, s.start) {
			continue
		}
		text := b[s.text:end]
		if bytes.IndexByte(b[:s.start], '"') >= 0 {
			// It stands in quotes: '{"log":"n1:… NCCL INFO …\n","stream":"stdout"}'.
			if quote := bytes.IndexByte(text, '"'); quote >= 0 {
				text = text[:quote]
			}
		}
		text = beforeLineEnd(text)
		m := &st.msg
		*m = message{rank: -1, dev: -1, nccl: true, warn: s.warn, clean: s.clean, text: trimEnd(text), raw: b}
		if s.hasPrefix {
			m.proc, m.dev = st.procOf(s), s.dev
		}
		home := st
		if m.proc != nil {
			home = m.proc.home
		}
		if home == nil {
			st.runs.keep(m.proc, append(bytes.Clone(b[s.start:s.text]), text...))
			continue
		}
		if m.proc != nil {
			m.proc.last, home.last = st.runs.lines, st.runs.lines
		}
		home.library("nccl")
		home.message(m)
	}
}

// quoted reads what torch prints behind "Last error:", which is NCCL's last warning.
func (st *state) quoted(b []byte) {
	t := bytes.TrimSpace(b)
	for {
		rest := afterRankTag(t)
		if len(rest) == len(t) {
			break
		}
		t = rest
	}
	if len(t) < 8 || bytes.Contains(t, []byte("Traceback")) || bytes.HasPrefix(t, []byte("File ")) {
		return
	}
	st.lines++
	st.library("nccl")
	m := &message{rank: torchRank(bytes.TrimSpace(b)), dev: -1, nccl: true, warn: true, text: t, raw: b}
	st.message(m)
}

// before returns where the message ends that begins at from, and to whose end another
// process's prefix was glued: '… set by environment to 0.n2:20:21 [0] NCCL INFO …'. A
// host name does not tell where it begins, unless it is known.
func (st *state) before(b []byte, from int, next *segment) int {
	if !next.hasPrefix || next.clean {
		return next.start
	}
	for i := range next.host {
		if st.hosts[string(next.host[i:])] != nil {
			return next.start + i
		}
	}
	if bytes.HasSuffix(b[min(from, next.start):next.start], []byte(" to ")) {
		return next.start + len(next.host) // a value is not nothing
	}
	return next.start
}

// beforeLineEnd returns text up to a line end that an export wrote as characters.
func beforeLineEnd(text []byte) []byte {
	if i := bytes.IndexByte(text, '\\'); i >= 0 {
		for ; i+1 < len(text); i++ {
			if text[i] == '\\' && (text[i+1] == 'n' || text[i+1] == '"') {
				return bytes.TrimRight(bytes.TrimSuffix(text[:i], []byte(`\r`)), `\`)
			}
		}
	}
	if i := bytes.Index(text, []byte("<br")); i >= 0 {
		return text[:i]
	}
	return text
}

// bare reads text that has no NCCL prefix.
func (st *state) bare(b, raw []byte) {
	m := &message{rank: -1, dev: -1, text: bytes.TrimSpace(b), raw: raw}
	m.rank = torchRank(m.text)
	if m.rank >= 0 {
		if len(st.tagRanks) < maxProcs {
			st.tagRanks[m.rank] = true
		}
	}
	for i := range barePatterns {
		p := &barePatterns[i]
		at := bytes.Index(m.text, p.mark)
		if at < 0 {
			continue
		}
		m.arg = m.text[at+len(p.mark):]
		if p.do(st, m) {
			return
		}
	}
}

// torchRank returns N of a line that begins with torch's [rankN]: or a
// launcher's [defaultN]: tag, or -1.
func torchRank(b []byte) int {
	rest, ok := bytes.CutPrefix(b, []byte("[rank"))
	if !ok {
		return -1
	}
	n, rest := leadingInt(rest)
	if n < 0 || !bytes.HasPrefix(rest, []byte("]")) {
		return -1
	}
	return n
}

// leadingInt reads the decimal number that b begins with; -1 where there is none.
func leadingInt(b []byte) (int, []byte) {
	n, i := 0, 0
	for i < len(b) && b[i] >= '0' && b[i] <= '9' && n < 1<<30 {
		n = n*10 + int(b[i]-'0')
		i++
	}
	if i == 0 {
		return -1, b
	}
	return n, b[i:]
}

// intAfter returns the number behind key in b, or -1.
func intAfter(b []byte, key string) int {
	i := bytes.Index(b, []byte(key))
	if i < 0 {
		return -1
	}
	n, rest := leadingInt(b[i+len(key):])
	// A number that ends where the line was cut off, or runs into another
	// process's bytes, is not the number.
	if len(rest) > 0 && (isHostByte(rest[0]) && rest[0] != '.') {
		return -1
	}
	return n
}

// word returns b up to the first space, trimmed of closing punctuation.
func word(b []byte) string {
	if i := bytes.IndexAny(b, " \t"); i >= 0 {
		b = b[:i]
	}
	return string(bytes.TrimRight(b, ".,;"))
}
