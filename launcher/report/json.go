package report

import (
	"encoding/json"
	"io"

	"fabrun/launcher/watch"
)

// writeJSON writes a document: indented, < and > as they are.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Version is what 'fabrun version' tells.
type Version struct {
	Schema     string   `json:"schema"`
	Version    string   `json:"version"`
	Commit     *string  `json:"commit"`      // that it was built from; ends in -changed where the tree was another
	CommitDate *string  `json:"commit_date"` // year-month-day
	Go         string   `json:"go"`
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	Modules    []Module `json:"modules"` // that are linked
}

// Module is a Go module.
type Module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// VersionJSON writes it as fabrun/version/v1.
func VersionJSON(w io.Writer, v Version) error {
	v.Schema = "fabrun/version/v1"
	return json.NewEncoder(w).Encode(v)
}

type errorJSON struct {
	Schema     string `json:"schema"`
	Error      string `json:"error"`       // what was read, what was wrong
	Hint       string `json:"hint"`        // what to do; "" where there is nothing to say
	ExitStatus int    `json:"exit_status"` // of fabrun
}

// ErrorJSON writes an error as fabrun/error/v1; inLine: as one line among others.
func ErrorJSON(w io.Writer, text, hint string, status int, inLine bool) error {
	e := errorJSON{"fabrun/error/v1", text, hint, status}
	if !inLine {
		return writeJSON(w, e)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}

type snapshotJSON struct {
	Schema   string `json:"schema"`
	Snapshot string `json:"snapshot"` // the file's text
}

// SnapshotJSON writes a snapshot as fabrun/snapshot/v1.
func SnapshotJSON(w io.Writer, text string) error {
	return json.NewEncoder(w).Encode(snapshotJSON{"fabrun/snapshot/v1", text})
}

// SelfCheck is one line of 'fabrun slurm selftest'.
type SelfCheck struct {
	Name string `json:"name"`
	OK   *bool  `json:"ok"` // null: could not be tried, which fails nothing
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

type selftestJSON struct {
	Schema string      `json:"schema"`
	Checks []SelfCheck `json:"checks"`
}

// SelftestJSON writes them as fabrun/slurm-selftest/v1.
func SelftestJSON(w io.Writer, checks []SelfCheck) error {
	return writeJSON(w, selftestJSON{"fabrun/slurm-selftest/v1", checks})
}

// WatchJSON writes a verdict as fabrun/watch/v1.
func WatchJSON(w io.Writer, v watch.Verdict) error { return writeJSON(w, v) }

// NodeJobJSON writes what an epilog left as fabrun/slurm-job/v1.
func NodeJobJSON(w io.Writer, j NodeJob) error { return writeJSON(w, j) }
