package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/licensecheck"
)

// module is one that is linked.
type module struct {
	path, version string
	sum           string // go.sum's, "" of Go itself
	dir           string // where its files are
	licence       string // an SPDX expression
}

// legal are the files of a module that have to go with what is made of it.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|authors|contributors)([-.].*)?$`)

// linked are the modules that the programs say they are made of, and Go itself.
func linked(programs ...string) ([]module, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	all := map[string]module{"std": {path: "std", version: strings.TrimPrefix(runtime.Version(), "go"), dir: strings.TrimSpace(string(root))}}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return nil, err
		}
		for _, d := range info.Deps {
			if d.Replace != nil {
				return nil, fmt.Errorf("%s: %s is replaced by %s, whose licence is not looked up", p, d.Path, d.Replace.Path)
			}
			all[d.Path] = module{path: d.Path, version: d.Version, sum: d.Sum}
		}
	}
	var ms []module
	for _, m := range all {
		if m.dir == "" {
			out, err := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version).Output()
			var at struct{ Dir string }
			if err = errors.Join(err, json.Unmarshal(out, &at)); err != nil {
				return nil, fmt.Errorf("go mod download %s@%s: %w", m.path, m.version, err)
			}
			m.dir = at.Dir
		}
		ms = append(ms, m)
	}
	slices.SortFunc(ms, func(a, b module) int { return cmp.Compare(a.path, b.path) })
	return ms, nil
}

// files are a module's legal files.
func (m module) files() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && legal.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s@%s has no licence file", m.path, m.version)
	}
	return names, nil
}

// expression reads the licence files of a module: what all of them say together.
func (m module) expression() (string, error) {
	names, err := m.files()
	if err != nil {
		return "", err
	}
	var ids []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			return "", err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(ids, match.ID) && !match.IsURL && match.ID != "GooglePatentsFile" && match.ID != "GooglePatentClause" {
				ids = append(ids, match.ID)
			}
		}
	}
	if len(ids) == 0 {
		return "", fmt.Errorf("%s@%s: no licence is recognised in %s", m.path, m.version, strings.Join(names, ", "))
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND "), nil
}

// origins writes the licences of what is linked, and the SBOM, beside the docs.
func (r release) origins(arch, dir string) error {
	programs := []string{filepath.Join(dir, "bin/fabrun"), filepath.Join(dir, "bin/fabrun-nvml")}
	ms, err := linked(programs...)
	if err != nil {
		return err
	}
	doc := filepath.Join(dir, "share/doc/fabrun")
	for i, m := range ms {
		if ms[i].licence, err = m.expression(); err != nil {
			return err
		}
		names, err := m.files()
		if err != nil {
			return err
		}
		to := filepath.Join(doc, "licenses", filepath.FromSlash(m.path)+"@"+m.version)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for _, name := range names {
			if err := write(filepath.Join(m.dir, name), filepath.Join(to, name), 0o644); err != nil {
				return err
			}
		}
	}
	text, err := r.sbom(arch, programs, ms)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(doc, "fabrun.cdx.json"), text, 0o644)
}

// The parts of CycloneDX 1.6 that are needed (cyclonedx.org/docs/1.6/json).
type (
	bom struct {
		Schema     string      `json:"$schema"`
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   bomMetadata `json:"metadata"`
		Components []component `json:"components"`
	}
	bomMetadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string          `json:"type"`
		Ref        string          `json:"bom-ref"`
		Name       string          `json:"name"`
		Version    string          `json:"version,omitempty"`
		PURL       string          `json:"purl,omitempty"`
		Hashes     []hash          `json:"hashes,omitempty"`
		Licenses   []licenceChoice `json:"licenses,omitempty"`
		Properties []property      `json:"properties,omitempty"`
	}
	hash struct {
		Alg     string `json:"alg"`
		Content string `json:"content"`
	}
	licenceChoice struct {
		Expression string `json:"expression"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// sbom says what the programs are made of, by their own account.
func (r release) sbom(arch string, programs []string, ms []module) ([]byte, error) {
	b := bom{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", Spec: "1.6", Version: 1,
		Metadata: bomMetadata{r.date.Format(time.RFC3339), component{
			Type: "application", Ref: "fabrun", Name: "fabrun", Version: r.version, Licenses: []licenceChoice{{"Apache-2.0"}},
			Properties: []property{{"fabrun:commit", cmp.Or(r.commit, "unknown")}, {"fabrun:platform", "linux/" + arch}},
		}},
	}
	for _, p := range programs {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		name := "bin/" + filepath.Base(p)
		b.Components = append(b.Components, component{Type: "file", Ref: name, Name: name, Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}})
	}
	for _, m := range ms {
		purl := "pkg:golang/" + m.path + "@" + m.version
		c := component{Type: "library", Ref: purl, Name: m.path, Version: m.version, PURL: purl, Licenses: []licenceChoice{{m.licence}}}
		if m.sum != "" {
			c.Properties = []property{{"go:sum", m.sum}} // of the tree, not of a file: no hash as CycloneDX means it
		}
		b.Components = append(b.Components, c)
	}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}
