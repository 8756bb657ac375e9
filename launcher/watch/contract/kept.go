package contract

import (
	"cmp"
	"fmt"
	"slices"
)

// Kept is what became of the promise.
type Kept struct {
	Promised int         `json:"promised"`  // rails
	Kept     int         `json:"kept"`      // at the end
	RateGbps *float64    `json:"rate_gbps"` // promised of most ports; null unknown
	LeftGbps *float64    `json:"left_gbps"` // of all rails of a host at the end; null unknown
	AllGbps  *float64    `json:"all_gbps"`  // of all rails of a host as promised; null unknown
	Losses   []Loss      `json:"losses"`
	GIDs     []GIDChange `json:"gids"`
	Price    *Price      `json:"price"` // null: nothing was lost, or there is no basis for a figure
	Text     string      `json:"text"`  // "" where there is nothing to say
}

// Kept sums up; fellBack says that the job's data went over TCP and nobody had asked
// for that, gpus how many GPUs the job has (0 unknown).
func (j *Judge) Kept(fellBack bool, gpus int) Kept {
	k := Kept{Promised: len(j.rails), Kept: j.whole(), Losses: []Loss{}, GIDs: append([]GIDChange{}, j.gids...), Price: j.price(fellBack, gpus)}
	if r := j.promise.RateGbps; r > 0 {
		k.RateGbps = &r
	}
	if left, of := j.capacity(); of > 0 {
		k.LeftGbps, k.AllGbps = &left, &of
	}
	now := false
	for _, r := range j.rails {
		k.Losses = append(k.Losses, r.losses...)
		now = now || len(r.down) > 0
	}
	slices.SortStableFunc(k.Losses, func(a, b Loss) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Port, b.Port)) })
	givenUp, _ := j.givenUp()
	switch {
	case now || givenUp > 0:
		k.Text = upper(j.sentence()) + "."
	case len(k.Losses) > 0:
		k.Text = upper(j.sentence()) + " at the end; " + k.lostWords() + "."
	}
	if wrong := len(j.stale); wrong > 0 {
		k.Text = join(k.Text, fmt.Sprintf("%s changed under the job and stayed so.", count(wrong, "GID")))
	}
	if k.Price != nil {
		k.Text = join(k.Text, "Price: "+k.Price.Text)
	}
	return k
}

// lostWords tells of rails that were lost and came back.
func (k Kept) lostWords() string {
	longest := k.Losses[0]
	for _, l := range k.Losses {
		if l.Until.Sub(l.From) > longest.Until.Sub(longest.From) {
			longest = l
		}
	}
	s := fmt.Sprintf("%s on %s: %s from %s to %s", longest.Port, longest.Host, longest.Why, clock(longest.From), clock(*longest.Until))
	if n := len(k.Losses); n > 1 {
		s += fmt.Sprintf(", the longest of %d losses", n)
	}
	return s
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + " " + b
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
