package watch

import (
	"bytes"
	"encoding/json"
	"time"
)

// In JSON what is not known is null, never "" or the year 1.

// MarshalJSON writes an event whose time, host and rank may not be known.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event
	var at *time.Time
	if !e.Time.IsZero() {
		at = &e.Time
	}
	return marshal(struct {
		Time *time.Time `json:"time"`
		Host *string    `json:"host"`
		plain
	}{at, known(e.Host), plain(e)})
}

// MarshalJSON writes a verdict whose library and version may not be known.
func (v Verdict) MarshalJSON() ([]byte, error) {
	type plain Verdict
	return marshal(struct {
		Schema  string  `json:"schema"`
		Library *string `json:"library"`
		Version *string `json:"version"`
		plain
	}{v.Schema, known(v.Library), known(v.Version), plain(v)})
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// marshal leaves < and > as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
