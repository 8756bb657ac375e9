package hang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RAS is one answer of NCCL's RAS subsystem, as far as a standstill is judged by
// it (NCCL user guide, RAS, "JSON Output"; since 2.28.7).
type RAS struct {
	Version string `json:"version"`
	Comms   []Comm `json:"comms"`
}

// Comm is one communicator.
type Comm struct {
	ID       string    `json:"id"`
	Size     int       `json:"size"`
	Total    uint64    `json:"total"`            // collectives that its ranks have launched, all together
	Behind   []RASRank `json:"behind,omitempty"` // that have launched fewer of an operation than others
	BehindN  int       `json:"behind_n,omitempty"`
	Silent   []RASRank `json:"silent,omitempty"` // that gave RAS no answer
	SilentN  int       `json:"silent_n,omitempty"`
	Starting int       `json:"starting,omitempty"` // whose initialisation is under way
	Failed   int       `json:"failed,omitempty"`   // that report an error
}

// RASRank is a rank of a communicator.
type RASRank struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"` // an address
	PID   int    `json:"pid"`
	Op    string `json:"op,omitempty"`
	Count uint64 `json:"count,omitempty"`
	Most  uint64 `json:"most,omitempty"` // that another rank has launched
	Dead  bool   `json:"dead,omitempty"`
}

// Bounds of what is kept of an answer.
const (
	maxComms    = 64
	maxRASRanks = 16
)

// rasAnswer is the form of the documentation.
type rasAnswer struct {
	Version string `json:"nccl_version"`
	Comms   []struct {
		Hash      string          `json:"hash"`
		Secondary string          `json:"secondary_hash"`
		Size      int             `json:"size"`
		Ranks     []rasAnswerRank `json:"ranks"`
		Missing   []rasAnswerRank `json:"missing_ranks"`
	} `json:"communicators"`
}

type rasAnswerRank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	Status struct {
		Init         int  `json:"init_state"` // 7 is ncclInProgress
		Async        int  `json:"async_error"`
		Finalize     bool `json:"finalize_called"`
		Abort        bool `json:"abort_flag"`
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
	Counts map[string]uint64 `json:"collective_counts"`
}

const ncclInProgress = 7

// ParseRAS reads what a RAS thread answers to "SET FORMAT json" and "STATUS": its
// words of assent, a line each, and one JSON object.
func ParseRAS(text []byte) (RAS, error) {
	at := bytes.IndexByte(text, '{')
	if at < 0 {
		line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if len(line) > 80 {
			line = line[:80]
		}
		return RAS{}, fmt.Errorf("no JSON in NCCL RAS's answer %q (before NCCL 2.28.7 it has none)", line)
	}
	for line := range bytes.Lines(text[:at]) {
		if bytes.HasPrefix(line, []byte("ERROR")) {
			return RAS{}, fmt.Errorf("NCCL RAS answers %q", bytes.TrimSpace(line))
		}
	}
	var a rasAnswer
	if err := json.NewDecoder(bytes.NewReader(text[at:])).Decode(&a); err != nil {
		return RAS{}, fmt.Errorf("NCCL RAS's answer: %w", err)
	}
	if a.Version == "" && a.Comms == nil {
		return RAS{}, errors.New("NCCL RAS's answer has no communicators and no version")
	}
	out := RAS{Version: a.Version}
	for _, c := range a.Comms {
		if len(out.Comms) == maxComms {
			break
		}
		k := Comm{ID: c.Hash + " " + c.Secondary, Size: c.Size}
		most := map[string]uint64{}
		for _, r := range c.Ranks {
			for op, n := range r.Counts {
				most[op] = max(most[op], n)
				k.Total += n
			}
		}
		ops := make([]string, 0, len(most))
		for op := range most {
			ops = append(ops, op)
		}
		slices.Sort(ops)
		for _, r := range c.Ranks {
			switch s := r.Status; {
			case s.Init == ncclInProgress:
				k.Starting++
			case s.Init != 0 || s.Async != 0 && s.Async != ncclInProgress || s.Abort:
				k.Failed++
			}
			for _, op := range ops {
				if n := r.Counts[op]; n < most[op] {
					k.BehindN++
					if len(k.Behind) < maxRASRanks {
						k.Behind = append(k.Behind, RASRank{Rank: r.Rank, Host: r.Host, PID: r.PID, Op: op, Count: n, Most: most[op]})
					}
					break
				}
			}
		}
		for _, r := range c.Missing {
			if !r.Status.Unresponsive && !r.Status.Dead {
				continue // it is on its way in or out
			}
			k.SilentN++
			if len(k.Silent) < maxRASRanks {
				k.Silent = append(k.Silent, RASRank{Rank: r.Rank, Host: r.Host, PID: r.PID, Dead: r.Status.Dead})
			}
		}
		out.Comms = append(out.Comms, k)
	}
	return out, nil
}

// rasWord is what NCCL says of a standstill, by two answers.
type rasWord int

const (
	rasNone    rasWord = iota // it was not asked, or gave no two answers
	rasHealthy                // all ranks have come equally far
	rasMoves                  // further collectives were launched in between
	rasLags                   // ranks lag, or do not answer
)

func (w rasWord) word(comms []Comm) string {
	switch w {
	case rasLags:
		return rasText(comms)
	case rasMoves:
		return "NCCL RAS counts further collectives"
	case rasHealthy:
		return "NCCL RAS calls the job healthy: all ranks have launched the same collectives"
	}
	return ""
}

// rasSays compares the first and the last answer of this standstill. Asking again
// matters: collectives are faster than the query, so that counts of a healthy job
// may differ (NCCL user guide, RAS, "Sample Output").
func (j *Judge) rasSays() (rasWord, []Comm) {
	word := rasNone
	var bad []Comm
	for _, name := range j.names {
		n := j.hosts[name]
		if len(n.ras) < 2 {
			continue
		}
		word = max(word, rasHealthy)
		for _, now := range n.ras[1].Comms {
			i := slices.IndexFunc(n.ras[0].Comms, func(c Comm) bool { return c.ID == now.ID })
			switch {
			case i < 0 || n.ras[0].Comms[i].Total != now.Total:
				return rasMoves, nil
			case now.BehindN > 0 && n.ras[0].Comms[i].BehindN > 0 || now.SilentN > 0 && n.ras[0].Comms[i].SilentN > 0:
				word, bad = rasLags, append(bad, now)
			}
		}
		if word == rasLags {
			return word, bad // all nodes tell of the same job
		}
	}
	return word, bad
}

// rasText says who lags, and in what.
func rasText(comms []Comm) string {
	for _, c := range comms {
		if len(c.Silent) > 0 {
			verb := "does not answer"
			if c.Silent[0].Dead {
				verb = "is dead"
			}
			return fmt.Sprintf("NCCL RAS says that rank %d (process %d on %s) %s%s", c.Silent[0].Rank, c.Silent[0].PID, c.Silent[0].Host, verb, more(c.SilentN))
		}
	}
	for _, c := range comms {
		if len(c.Behind) > 0 {
			r := c.Behind[0]
			return fmt.Sprintf("NCCL RAS says that rank %d (process %d on %s) has launched %d %s where others have %d%s", r.Rank, r.PID, r.Host, r.Count, r.Op, r.Most, more(c.BehindN))
		}
	}
	return "NCCL RAS names nobody"
}

func more(n int) string {
	switch {
	case n == 2:
		return ", and one more rank"
	case n > 2:
		return fmt.Sprintf(", and %d more ranks", n-1)
	}
	return ""
}
