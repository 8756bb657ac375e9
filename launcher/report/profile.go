package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fabrun/profiles"
)

// Profiles writes the list of profiles for people.
func Profiles(w io.Writer, fabrics, workloads []profiles.Info) error {
	t := &text{w: w}
	section := func(title string, infos []profiles.Info) {
		t.printf("%s\n", title)
		for _, i := range infos {
			if i.Err != nil {
				t.printf("  %-18s wrong: %v\n", i.Name, i.Err)
				continue
			}
			t.printf("  %-18s %s\n", i.Name, i.About)
			if i.Source != profiles.BuiltIn {
				t.printf("  %-18s (%s)\n", "", i.Source)
			}
		}
	}
	section("Fabric profiles (--profile)", fabrics)
	t.printf("\n")
	section("Workload profiles (--workload)", workloads)
	return t.err
}

type infoJSON struct {
	Name   string  `json:"name"`
	About  *string `json:"about"`
	Source *string `json:"source"`
	Error  *string `json:"error"`
}

type profilesJSON struct {
	Schema    string     `json:"schema"`
	Profiles  []infoJSON `json:"profiles"`
	Workloads []infoJSON `json:"workloads"`
}

// ProfilesJSON writes schema fabrun/profiles/v1.
func ProfilesJSON(w io.Writer, fabrics, workloads []profiles.Info) error {
	convert := func(infos []profiles.Info) []infoJSON {
		out := []infoJSON{}
		for _, i := range infos {
			j := infoJSON{Name: i.Name, About: known(i.About), Source: known(i.Source)}
			if i.Err != nil {
				j.Error = known(i.Err.Error())
			}
			out = append(out, j)
		}
		return out
	}
	return writeJSON(w, profilesJSON{"fabrun/profiles/v1", convert(fabrics), convert(workloads)})
}

// tomlLines writes keys of one table, in order, leaving out what is not said.
type tomlLines struct{ t *text }

// str writes a TOML basic string: TOML's escapes are a part of Go's for what
// profiles can hold (no control characters but tab).
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (l tomlLines) str(key, v string) {
	if v != "" {
		l.t.printf("%s = %s\n", key, tomlString(v))
	}
}

func (l tomlLines) list(key string, vs []string) {
	if len(vs) == 0 {
		return
	}
	var out []string
	for _, v := range vs {
		out = append(out, tomlString(v))
	}
	l.t.printf("%s = [%s]\n", key, strings.Join(out, ", "))
}

func (l tomlLines) integer(key string, v *int) {
	if v != nil {
		l.t.printf("%s = %d\n", key, *v)
	}
}

func (l tomlLines) float(key string, v *float64) {
	if v != nil {
		s := strconv.FormatFloat(*v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		l.t.printf("%s = %s\n", key, s)
	}
}

func (l tomlLines) boolean(key string, v *bool) {
	if v != nil {
		l.t.printf("%s = %v\n", key, *v)
	}
}

func (l tomlLines) integers(key string, vs []int) {
	if len(vs) == 0 {
		return
	}
	var out []string
	for _, v := range vs {
		out = append(out, strconv.Itoa(v))
	}
	l.t.printf("%s = [%s]\n", key, strings.Join(out, ", "))
}

func (l tomlLines) class(key string, c *profiles.Class, note string) {
	if c == nil {
		return
	}
	parts := []string{fmt.Sprintf("dscp = %d", c.DSCP), fmt.Sprintf("ecn = %d", c.ECN)}
	if c.Priority != nil {
		parts = append(parts, fmt.Sprintf("priority = %d", *c.Priority))
	}
	if c.SL != nil {
		parts = append(parts, fmt.Sprintf("sl = %d", *c.SL))
	}
	l.t.printf("%s = { %s }%s\n", key, strings.Join(parts, ", "), note)
}

func (l tomlLines) env(vs []profiles.Setting) {
	if len(vs) == 0 {
		return
	}
	l.t.printf("\n[env]\n")
	for _, v := range vs {
		var by []string
		for _, o := range v.ByPCI {
			by = append(by, tomlString(o.ID)+" = "+tomlString(o.Value))
		}
		other := ""
		if by != nil {
			other = ", by_pci = { " + strings.Join(by, ", ") + " }"
		}
		l.t.printf("%s = { value = %s%s, why = %s }\n", v.Name, tomlString(v.Value), other, tomlString(v.Why))
	}
}

func some[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Profile writes a fabric profile as a file that reads back as the same.
func Profile(w io.Writer, p profiles.Profile) error {
	t := &text{w: w}
	l := tomlLines{t}
	t.printf("# from: %s\n", strings.ReplaceAll(p.Source, "\n", " "))
	l.str("name", p.Name)
	l.str("about", p.About)
	if len(p.Hints) > 0 {
		t.printf("hints = [\n")
		for _, h := range p.Hints {
			t.printf("    %s,\n", tomlString(h))
		}
		t.printf("]\n")
	}
	m := p.Match
	if len(m.DMI)+len(m.PCI)+len(m.HCAs)+len(m.Netdevs)+len(m.Files) > 0 {
		t.printf("\n[match]\n")
		l.list("dmi", m.DMI)
		l.list("pci", m.PCI)
		l.list("hcas", m.HCAs)
		l.list("netdevs", m.Netdevs)
		l.list("files", m.Files)
	}
	f := p.Fabric
	t.printf("\n[fabric]\n")
	l.str("link_layer", f.LinkLayer)
	l.integer("roce_version", some(f.RoCEVersion))
	l.float("rate_gbps", f.RateGbps)
	l.integer("min_mtu_bytes", f.MinMTUBytes)
	l.list("subnets", f.Subnets)
	l.str("bootstrap", f.Bootstrap)
	l.str("gid_family", f.GIDFamily)
	l.list("exclude_hcas", f.ExcludeHCAs)
	for _, card := range slices.Sorted(maps.Keys(f.MinFirmware)) {
		l.str("min_firmware."+strconv.Quote(card), f.MinFirmware[card])
	}
	l.boolean("rail_only", f.RailOnly)
	l.boolean("adaptive_routing", f.AdaptiveRoute)
	l.str("driver", f.Driver)
	l.boolean("set_nothing", some(f.SetNothing))
	if q := f.QoS; q != nil {
		t.printf("\n[fabric.qos]\n")
		l.str("trust", q.Trust)
		l.class("rdma", &q.RDMA, fmt.Sprintf(" # traffic class %d", q.RDMA.TC()))
		l.class("control", q.Control, "")
		l.class("cnp", q.CNP, "")
		l.integers("pfc", q.PFC)
		var ecn []string
		if q.ECNMinKB != nil {
			ecn = append(ecn, fmt.Sprintf("min_kb = %d", *q.ECNMinKB))
		}
		if q.ECNMaxKB != nil {
			ecn = append(ecn, fmt.Sprintf("max_kb = %d", *q.ECNMaxKB))
		}
		if len(ecn) > 0 {
			t.printf("ecn = { %s }\n", strings.Join(ecn, ", "))
		}
		l.integer("pool_percent", q.Pool)
		l.integers("ets", q.ETS)
		l.boolean("watchdog", q.Watchdog)
	}
	if e := f.Expect; e != (profiles.Expect{}) {
		t.printf("\n[fabric.expect]\n")
		l.float("warn_fraction", e.WarnFraction)
		l.float("error_fraction", e.ErrorFraction)
		l.float("latency_usec", e.LatencyUsec)
	}
	l.env(p.Env)
	return t.err
}

// Workload writes a workload profile as a file that reads back as the same.
func Workload(w io.Writer, p profiles.Workload) error {
	t := &text{w: w}
	l := tomlLines{t}
	t.printf("# from: %s\n", strings.ReplaceAll(p.Source, "\n", " "))
	l.str("name", p.Name)
	l.str("about", p.About)
	l.str("slots", p.Slots)
	l.integer("reserve_cores", some(p.ReserveCores))
	l.integer("memory_channels", p.MemoryChannels)
	l.str("binding", p.Binding)
	l.list("mpi_options", p.MPIOptions)
	l.list("forward", p.Forward)
	l.list("programs", p.Programs)
	l.env(p.Env)
	return t.err
}

type settingJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why"`
	// ByPCI are other values, by the PCI ID of a device that the machine has.
	ByPCI map[string]string `json:"by_pci,omitempty"`
}

func settingsJSON(vs []profiles.Setting) []settingJSON {
	out := []settingJSON{}
	for _, v := range vs {
		j := settingJSON{Name: v.Name, Value: v.Value, Why: v.Why}
		for _, o := range v.ByPCI {
			if j.ByPCI == nil {
				j.ByPCI = map[string]string{}
			}
			j.ByPCI[o.ID] = o.Value
		}
		out = append(out, j)
	}
	return out
}

type classJSON struct {
	DSCP     int  `json:"dscp"`
	ECN      int  `json:"ecn"`
	TC       int  `json:"tc"`
	Priority *int `json:"priority"`
	SL       *int `json:"sl"`
}

func toClassJSON(c *profiles.Class) *classJSON {
	if c == nil {
		return nil
	}
	return &classJSON{c.DSCP, c.ECN, c.TC(), c.Priority, c.SL}
}

type qosJSON struct {
	Trust    *string    `json:"trust"`
	RDMA     *classJSON `json:"rdma"`
	Control  *classJSON `json:"control"`
	CNP      *classJSON `json:"cnp"`
	PFC      []int      `json:"pfc"`
	ECNMinKB *int       `json:"ecn_min_kb"`
	ECNMaxKB *int       `json:"ecn_max_kb"`
	Pool     *int       `json:"pool_percent"`
	ETS      []int      `json:"ets_percent"`
	Watchdog *bool      `json:"watchdog"`
}

type profileJSON struct {
	Schema        string            `json:"schema"`
	Name          string            `json:"name"`
	About         *string           `json:"about"`
	Source        *string           `json:"source"`
	LinkLayer     *string           `json:"link_layer"`
	RoCEVersion   *int              `json:"roce_version"`
	RateGbps      *float64          `json:"rate_gbps"`
	MinMTUBytes   *int              `json:"min_mtu_bytes"`
	Subnets       []string          `json:"subnets"`
	Bootstrap     *string           `json:"bootstrap"`
	GIDFamily     *string           `json:"gid_family"`
	ExcludeHCAs   []string          `json:"exclude_hcas"`
	MinFirmware   map[string]string `json:"min_firmware"` // by board ID, part or driver
	RailOnly      *bool             `json:"rail_only"`
	AdaptiveRoute *bool             `json:"adaptive_routing"`
	Driver        *string           `json:"driver"`
	SetNothing    bool              `json:"set_nothing"`
	QoS           *qosJSON          `json:"qos"`
	WarnFraction  *float64          `json:"warn_fraction"`
	ErrorFraction *float64          `json:"error_fraction"`
	LatencyUsec   *float64          `json:"latency_usec"`
	Env           []settingJSON     `json:"env"`
	Hints         []string          `json:"hints"`
}

// ProfileJSON writes schema fabrun/profile/v1.
func ProfileJSON(w io.Writer, p profiles.Profile) error {
	f := p.Fabric
	firmware := map[string]string{}
	maps.Copy(firmware, f.MinFirmware)
	var qos *qosJSON
	if q := f.QoS; q != nil {
		qos = &qosJSON{known(q.Trust), toClassJSON(&q.RDMA), toClassJSON(q.Control), toClassJSON(q.CNP), list(q.PFC), q.ECNMinKB, q.ECNMaxKB, q.Pool, list(q.ETS), q.Watchdog}
	}
	return writeJSON(w, profileJSON{
		"fabrun/profile/v1", p.Name, known(p.About), known(p.Source), known(f.LinkLayer), some(f.RoCEVersion), f.RateGbps, f.MinMTUBytes, list(f.Subnets), known(f.Bootstrap),
		known(f.GIDFamily), list(f.ExcludeHCAs), firmware, f.RailOnly, f.AdaptiveRoute, known(f.Driver), f.SetNothing, qos, f.Expect.WarnFraction, f.Expect.ErrorFraction, f.Expect.LatencyUsec,
		settingsJSON(p.Env), list(p.Hints),
	})
}

type workloadJSON struct {
	Schema       string        `json:"schema"`
	Name         string        `json:"name"`
	About        *string       `json:"about"`
	Source       *string       `json:"source"`
	Slots        *string       `json:"slots"`
	ReserveCores int           `json:"reserve_cores"`
	Channels     *int          `json:"memory_channels"`
	Binding      *string       `json:"binding"`
	MPIOptions   []string      `json:"mpi_options"`
	Forward      []string      `json:"forward"`
	Programs     []string      `json:"programs"`
	Env          []settingJSON `json:"env"`
}

// WorkloadJSON writes schema fabrun/workload/v1.
func WorkloadJSON(w io.Writer, p profiles.Workload) error {
	return writeJSON(w, workloadJSON{"fabrun/workload/v1", p.Name, known(p.About), known(p.Source), known(p.Slots), p.ReserveCores, p.MemoryChannels, known(p.Binding), list(p.MPIOptions), list(p.Forward), list(p.Programs), settingsJSON(p.Env)})
}

type profileCheckJSON struct {
	Schema string `json:"schema"`
	File   string `json:"file"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

// ProfileCheckJSON writes schema fabrun/profile-check/v1.
func ProfileCheckJSON(w io.Writer, file, kind, name string) error {
	return writeJSON(w, profileCheckJSON{"fabrun/profile-check/v1", file, kind, name})
}
