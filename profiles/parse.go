package profiles

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// maxFile bounds a profile: the largest sensible one is a few kilobytes.
const maxFile = 256 << 10

// The raw types are the file's: every key is a pointer or nil-able, so that a
// later file overrides exactly what it says.
type rawProfile struct {
	Name   *string           `toml:"name"`
	About  *string           `toml:"about"`
	Hints  []string          `toml:"hints"`
	Match  rawMatch          `toml:"match"`
	Fabric rawFabric         `toml:"fabric"`
	Env    map[string]rawEnv `toml:"env"`
}

type rawMatch struct {
	DMI     []string `toml:"dmi"`
	PCI     []string `toml:"pci"`
	HCAs    []string `toml:"hcas"`
	Netdevs []string `toml:"netdevs"`
	Files   []string `toml:"files"`
}

type rawFabric struct {
	LinkLayer       *string           `toml:"link_layer"`
	RoCEVersion     *int              `toml:"roce_version"`
	RateGbps        *float64          `toml:"rate_gbps"`
	MinMTUBytes     *int              `toml:"min_mtu_bytes"`
	Subnets         []string          `toml:"subnets"`
	Bootstrap       *string           `toml:"bootstrap"`
	GIDFamily       *string           `toml:"gid_family"`
	ExcludeHCAs     []string          `toml:"exclude_hcas"`
	MinFirmware     map[string]string `toml:"min_firmware"`
	RailOnly        *bool             `toml:"rail_only"`
	AdaptiveRouting *bool             `toml:"adaptive_routing"`
	Driver          *string           `toml:"driver"`
	SetNothing      *bool             `toml:"set_nothing"`
	QoS             *rawQoS           `toml:"qos"`
	Expect          rawExpect         `toml:"expect"`
}

type rawQoS struct {
	Trust       *string   `toml:"trust"`
	RDMA        *rawClass `toml:"rdma"`
	Control     *rawClass `toml:"control"`
	CNP         *rawClass `toml:"cnp"`
	PFC         []int     `toml:"pfc"`
	ECN         *rawECN   `toml:"ecn"`
	PoolPercent *int      `toml:"pool_percent"`
	ETS         []int     `toml:"ets"`
	Watchdog    *bool     `toml:"watchdog"`
}

type rawClass struct {
	DSCP     *int `toml:"dscp"`
	ECN      *int `toml:"ecn"`
	Priority *int `toml:"priority"`
	SL       *int `toml:"sl"`
}

type rawECN struct {
	MinKB *int `toml:"min_kb"`
	MaxKB *int `toml:"max_kb"`
}

type rawExpect struct {
	WarnFraction  *float64 `toml:"warn_fraction"`
	ErrorFraction *float64 `toml:"error_fraction"`
	LatencyUsec   *float64 `toml:"latency_usec"`
}

type rawEnv struct {
	Value *string           `toml:"value"`
	Why   *string           `toml:"why"`
	ByPCI map[string]string `toml:"by_pci"`
}

type rawWorkload struct {
	Name         *string           `toml:"name"`
	About        *string           `toml:"about"`
	Slots        *string           `toml:"slots"`
	ReserveCores *int              `toml:"reserve_cores"`
	Channels     *int              `toml:"memory_channels"`
	Binding      *string           `toml:"binding"`
	MPIOptions   []string          `toml:"mpi_options"`
	Forward      []string          `toml:"forward"`
	Programs     []string          `toml:"programs"`
	Env          map[string]rawEnv `toml:"env"`
}

// doc is one parsed file that can say where each of its keys stands.
type doc struct {
	path string
	text string
	meta toml.MetaData
}

// decode reads text strictly into v: syntax errors, wrong types and unknown
// keys are errors that begin with "path:line:".
func decode(path, text string, v any) (*doc, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("profile %q: larger than %d bytes", path, maxFile)
	}
	if line, deep := tooDeep(text); deep {
		return nil, fmt.Errorf("%s:%d: a key or a value of more than %d parts inside each other", path, line, maxParts)
	}
	meta, err := toml.Decode(text, v)
	d := &doc{path: path, text: text, meta: meta}
	if err != nil {
		return nil, d.tomlError(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		// a table comes before its keys, and naming the table is enough
		return nil, d.errorf(unknown[0], "unknown key %q", unknown[0].String())
	}
	return d, nil
}

// maxParts is how many parts a key may have (a.b.c), and how deep lists and inline
// tables may lie in each other: profiles have three. The cost of the TOML reader
// grows with the square of the first, its stack with the second.
const maxParts = 32

// tooDeep returns the line at which a text exceeds maxParts. What a string after
// "=" holds is not looked at.
func tooDeep(text string) (line int, deep bool) {
	dots, depth, quotes := 0, 0, 0
	line = 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n':
			line++
			dots, quotes = 0, 0
		case '"', '\'':
			quotes++
		case '#':
			if quotes%2 == 0 { // not within a quoted key
				i += strings.IndexByte(text[i:]+"\n", '\n') - 1
			}
		case ',':
			dots = 0
		case '.':
			dots++
		case '[', '{':
			depth++
			dots = 0
		case ']', '}':
			depth = max(0, depth-1)
			dots = 0
		case '=':
			dots = 0
			for i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
				i++
			}
			n := stringLength(text[i+1:])
			line += strings.Count(text[i+1:i+1+n], "\n")
			i += n
		}
		if dots > maxParts || depth > maxParts {
			return line, true
		}
	}
	return 0, false
}

// stringLength is the length of the string with which a text begins; 0 for none.
func stringLength(text string) int {
	for _, quote := range []string{`"""`, "'''", `"`, "'"} {
		if !strings.HasPrefix(text, quote) {
			continue
		}
		for i := len(quote); i < len(text); i++ {
			switch {
			case strings.HasPrefix(text[i:], quote):
				return i + len(quote)
			case text[i] == '\\' && quote[0] == '"':
				i++
			case text[i] == '\n' && len(quote) == 1:
				return i
			}
		}
		return len(text)
	}
	return 0
}

var lineInError = lazy(`^toml: (?:line (\d+) )?\(last key "([^"]*)"\): (.*)$`)

func (d *doc) tomlError(err error) error {
	var pe toml.ParseError
	if errors.As(err, &pe) {
		return fmt.Errorf("%s:%d: %s", d.path, pe.Position.Line, pe.Message)
	}
	// Wrong types come as text only.
	if m := lineInError().FindStringSubmatch(err.Error()); m != nil {
		line := m[1]
		if line == "" {
			line = strconv.Itoa(d.line(strings.Split(m[2], ".")))
		}
		return fmt.Errorf("%s:%s: %s: %s", d.path, line, m[2], m[3])
	}
	return fmt.Errorf("%s: %s", d.path, strings.TrimPrefix(err.Error(), "toml: "))
}

func (d *doc) errorf(key []string, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", d.path, d.line(key), fmt.Sprintf(format, args...))
}

// stop is a value that refuses to be decoded, which makes the TOML reader say
// where it stands.
type stop struct{}

func (stop) UnmarshalTOML(any) error { return errStop }

var errStop = errors.New("here")

// line returns the line of a key, or of the nearest table around it.
func (d *doc) line(key []string) int {
	var top map[string]toml.Primitive
	meta, err := toml.Decode(d.text, &top)
	if err != nil {
		return 1
	}
	at, line := top, 1
	for _, word := range key {
		prim, ok := at[word]
		if !ok {
			return line
		}
		var pe toml.ParseError
		if errors.As(meta.PrimitiveDecode(prim, &stop{}), &pe) && pe.Position.Line > 0 {
			line = pe.Position.Line
		}
		at = nil
		if meta.PrimitiveDecode(prim, &at) != nil {
			return line
		}
	}
	return line
}

// checker collects the first impossible value of a file.
type checker struct {
	d   *doc
	err error
}

func (c *checker) fail(key, format string, args ...any) {
	if c.err == nil {
		c.err = c.d.errorf(strings.Split(key, "."), "%s: %s", key, fmt.Sprintf(format, args...))
	}
}

func (c *checker) oneOf(key string, v *string, allowed ...string) {
	if v != nil && !slices.Contains(allowed, *v) {
		c.fail(key, "%q is not one of %s", *v, strings.Join(allowed, ", "))
	}
}

func (c *checker) between(key string, v *int, lo, hi int) {
	if v != nil && (*v < lo || *v > hi) {
		c.fail(key, "%d is not between %d and %d", *v, lo, hi)
	}
}

func (c *checker) fraction(key string, v *float64) {
	if v != nil && !(*v > 0 && *v <= 1) {
		c.fail(key, "%v is not a fraction above 0 and at most 1", *v)
	}
}

func (c *checker) positive(key string, v *float64) {
	if v != nil && !(*v > 0) {
		c.fail(key, "%v is not above 0", *v)
	}
}

func (c *checker) class(key string, k *rawClass) {
	if k == nil {
		return
	}
	c.between(key+".dscp", k.DSCP, 0, 63)
	c.between(key+".ecn", k.ECN, 0, 3)
	c.between(key+".priority", k.Priority, 0, 7)
	c.between(key+".sl", k.SL, 0, 15)
}

var (
	pciForm    = lazy(`^[0-9a-f]{4}:[0-9a-f]{4}$`)
	ifaceForm  = lazy(`^[^\s/:]{1,15}$`)
	driverForm = lazy(`^[a-z0-9_]{1,32}$`)
	slotsForm  = lazy(`^(cores|gpus|numa|node|channels:[1-9][0-9]?)$`)
)

func (c *checker) env(env map[string]rawEnv) {
	for _, key := range c.d.meta.Keys() { // in the file's order, so that the first error is the first line's
		if len(key) != 2 || key[0] != "env" {
			continue
		}
		e := env[key[1]]
		switch {
		case !isVariable(key[1]):
			c.fail("env."+key[1], "not a name of an environment variable")
		case e.Value == nil:
			c.fail("env."+key[1], `wants { value = "…", why = "…" }`)
		case strings.ContainsAny(*e.Value, "\x00\n\r"):
			c.fail("env."+key[1], "the value has a line break or a zero byte")
		case e.Why == nil || strings.TrimSpace(*e.Why) == "":
			c.fail("env."+key[1], "wants a reason: why = \"…\"")
		}
		for _, id := range slices.Sorted(maps.Keys(e.ByPCI)) {
			switch {
			case !pciForm().MatchString(id):
				c.fail("env."+key[1], "by_pci: %q is not vendor:device in lower case hexadecimal", id)
			case strings.ContainsAny(e.ByPCI[id], "\x00\n\r"):
				c.fail("env."+key[1], "by_pci: the value has a line break or a zero byte")
			}
		}
	}
}

func (d *doc) checkProfile(r *rawProfile) error {
	c := &checker{d: d}
	if r.Name != nil && !isName(*r.Name) {
		c.fail("name", "%q: lower case letters, digits, dot, dash and underscore only", *r.Name)
	}
	for _, id := range r.Match.PCI {
		if !pciForm().MatchString(id) {
			c.fail("match.pci", "%q is not vendor:device in lower case hexadecimal", id)
		}
	}
	f := &r.Fabric
	c.oneOf("fabric.link_layer", f.LinkLayer, "ethernet", "infiniband")
	for _, card := range slices.Sorted(maps.Keys(f.MinFirmware)) {
		if _, err := firmwareNumbers(f.MinFirmware[card]); err != nil {
			c.fail("fabric.min_firmware."+card, "%v", err)
		}
	}
	c.between("fabric.roce_version", f.RoCEVersion, 1, 2)
	c.positive("fabric.rate_gbps", f.RateGbps)
	c.between("fabric.min_mtu_bytes", f.MinMTUBytes, 576, 65536)
	for _, s := range f.Subnets {
		if p, err := netip.ParsePrefix(s); err != nil {
			c.fail("fabric.subnets", "%q is not a subnet (10.10.0.0/16, fd00::/48)", s)
		} else if p != p.Masked() {
			c.fail("fabric.subnets", "%q has bits after its prefix: meant is perhaps %s", s, p.Masked())
		}
	}
	if f.Bootstrap != nil && !ifaceForm().MatchString(*f.Bootstrap) && *f.Bootstrap != "management" {
		c.fail("fabric.bootstrap", "%q is neither management, fabric nor an interface name", *f.Bootstrap)
	}
	c.oneOf("fabric.gid_family", f.GIDFamily, "ipv4", "ipv6", "any")
	if f.Driver != nil && !driverForm().MatchString(*f.Driver) {
		c.fail("fabric.driver", "%q is not a driver's name", *f.Driver)
	}
	if f.LinkLayer != nil && *f.LinkLayer == "infiniband" && f.RoCEVersion != nil {
		c.fail("fabric.roce_version", "InfiniBand has no RoCE version")
	}
	if q := f.QoS; q != nil {
		c.oneOf("fabric.qos.trust", q.Trust, "dscp", "pcp")
		c.class("fabric.qos.rdma", q.RDMA)
		c.class("fabric.qos.control", q.Control)
		c.class("fabric.qos.cnp", q.CNP)
		for _, p := range q.PFC {
			c.between("fabric.qos.pfc", &p, 0, 7)
		}
		if q.ECN != nil {
			c.between("fabric.qos.ecn.min_kb", q.ECN.MinKB, 1, 1<<20)
			c.between("fabric.qos.ecn.max_kb", q.ECN.MaxKB, 1, 1<<20)
			if q.ECN.MinKB != nil && q.ECN.MaxKB != nil && *q.ECN.MinKB > *q.ECN.MaxKB {
				c.fail("fabric.qos.ecn", "min_kb %d is above max_kb %d", *q.ECN.MinKB, *q.ECN.MaxKB)
			}
		}
		c.between("fabric.qos.pool_percent", q.PoolPercent, 1, 100)
		sum := 0
		for _, p := range q.ETS {
			c.between("fabric.qos.ets", &p, 0, 100)
			sum += p
		}
		if n := len(q.ETS); n != 0 && n != 8 {
			c.fail("fabric.qos.ets", "wants 8 percentages, one per priority; has %d", n)
		} else if n == 8 && sum != 100 {
			c.fail("fabric.qos.ets", "the percentages sum to %d, not 100", sum)
		}
	}
	c.fraction("fabric.expect.warn_fraction", f.Expect.WarnFraction)
	c.fraction("fabric.expect.error_fraction", f.Expect.ErrorFraction)
	c.positive("fabric.expect.latency_usec", f.Expect.LatencyUsec)
	c.env(r.Env)
	return c.err
}

func (d *doc) checkWorkload(r *rawWorkload) error {
	c := &checker{d: d}
	if r.Name != nil && !isName(*r.Name) {
		c.fail("name", "%q: lower case letters, digits, dot, dash and underscore only", *r.Name)
	}
	if r.Slots != nil && !slotsForm().MatchString(*r.Slots) {
		c.fail("slots", "%q is none of cores, gpus, numa, node, channels:N", *r.Slots)
	}
	c.between("reserve_cores", r.ReserveCores, 0, 4096)
	c.between("memory_channels", r.Channels, 1, 1024)
	c.oneOf("binding", r.Binding, "numa", "core", "none")
	for _, o := range r.MPIOptions {
		if !strings.HasPrefix(o, "-") && strings.ContainsAny(o, " \t\n") {
			c.fail("mpi_options", "%q: one word each", o)
		}
	}
	c.env(r.Env)
	return c.err
}

// checkWhole checks what only holds of a profile after merging.
func checkWhole(p *Profile) error {
	q := p.Fabric.QoS
	if q == nil {
		return nil
	}
	if q.RDMA.Priority != nil && len(q.PFC) > 0 && !slices.Contains(q.PFC, *q.RDMA.Priority) {
		return fmt.Errorf("profile %q (%s): the RDMA class has priority %d, but pfc names only %v", p.Name, p.Source, *q.RDMA.Priority, q.PFC)
	}
	if e := p.Fabric.Expect; e.WarnFraction != nil && e.ErrorFraction != nil && *e.ErrorFraction > *e.WarnFraction {
		return fmt.Errorf("profile %q (%s): error_fraction %v is above warn_fraction %v", p.Name, p.Source, *e.ErrorFraction, *e.WarnFraction)
	}
	return nil
}

// lazy compiles expr when it is first used: most runs need none of a
// package's expressions, and all of them together cost more than a plan.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// isName reports whether a profile can be called s: it becomes a file name.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '_' || c == '-')) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// isVariable reports whether an environment variable can be called s.
func isVariable(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}
