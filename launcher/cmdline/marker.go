package cmdline

import (
	"slices"
	"strings"
)

// MarkerName is the variable by which a fabrun recognises an outer one: what
// it set, so that those values are not taken for the user's.
const MarkerName = "FABRUN_SET"

// Marker is the content of FABRUN_SET: "1;DIALECT;NAME=VALUE;…", with '%', ';'
// and control characters of the values written as %XX.
type Marker struct {
	Dialect string   // what the outer fabrun started; "" no outer fabrun
	Vars    []string // NAME=VALUE
}

// maxMarker bounds what is read: the kernel allows 128 KiB for one string.
const maxMarker = 128 << 10

// ParseMarker finds the outer fabrun's marker in an environment. What it
// cannot read counts as no marker.
func ParseMarker(env []string) Marker {
	text, ok := Lookup(env, MarkerName)
	if !ok || len(text) > maxMarker {
		return Marker{}
	}
	parts := strings.Split(text, ";")
	if len(parts) < 2 || parts[0] != "1" || parts[1] == "" {
		return Marker{}
	}
	m := Marker{Dialect: parts[1]}
	for _, p := range parts[2:] {
		if name, value, ok := strings.Cut(p, "="); ok && name != "" {
			m.Vars = append(m.Vars, name+"="+unescape(value))
		}
	}
	return m
}

// Planned reports whether the outer fabrun has planned a launcher's job.
func (m Marker) Planned() bool {
	d := Named(m.Dialect)
	return d != nil && d.Reads()
}

// String is the variable's value.
func (m Marker) String() string {
	var b strings.Builder
	b.WriteString("1;" + m.Dialect)
	for _, kv := range m.Vars {
		name, value, _ := strings.Cut(kv, "=")
		b.WriteString(";" + name + "=" + escape(value))
	}
	return b.String()
}

// Owns reports whether the outer fabrun set this variable to this value.
func (m Marker) Owns(name, value string) bool {
	return slices.Contains(m.Vars, name+"="+value)
}

const hexDigits = "0123456789ABCDEF"

func escape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if ch := s[i]; ch == '%' || ch == ';' || ch < ' ' || ch == 0x7f {
			b.WriteByte('%')
			b.WriteByte(hexDigits[ch>>4])
			b.WriteByte(hexDigits[ch&15])
		} else {
			b.WriteByte(ch)
		}
	}
	return b.String()
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// ShimName is the variable by which a shim in the private directory knows what
// the outer fabrun was told: "1;DIR;FLAG;FLAG…", escaped as in FABRUN_SET.
const ShimName = "FABRUN_SHIM"

// ShimNames are the launchers that scripts call by name.
func ShimNames() []string {
	out := []string{"mpirun", "mpiexec", "orterun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra"}
	for _, d := range Dialects {
		if d.scripted {
			out = append(out, d.programs[0])
		}
	}
	return out
}

// ShimValue is what ParseShim reads.
func ShimValue(dir string, flags []string) string {
	out := "1;" + escape(dir)
	for _, f := range flags {
		out += ";" + escape(f)
	}
	return out
}

// ParseShim returns the shims' directory and the flags of the outer fabrun.
func ParseShim(env []string) (dir string, flags []string, ok bool) {
	text, there := Lookup(env, ShimName)
	parts := strings.Split(text, ";")
	if !there || len(text) > maxMarker || len(parts) < 2 || parts[0] != "1" || parts[1] == "" {
		return "", nil, false
	}
	for _, p := range parts[2:] {
		flags = append(flags, unescape(p))
	}
	return unescape(parts[1]), flags, true
}
