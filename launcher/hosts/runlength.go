package hosts

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseRunLengths reads the form of SLURM_TASKS_PER_NODE and
// SLURM_JOB_CPUS_PER_NODE: "2(x3),1" is 2 2 2 1 (sbatch(1)).
func ParseRunLengths(value string) ([]int, error) {
	var all []int
	pos := 0
	for part := range strings.SplitSeq(value, ",") {
		bad := func(why string) error {
			return fmt.Errorf("%s: character %d: %s %s", quote(value), pos+1, quote(part), why)
		}
		numText, rest, repeated := strings.Cut(strings.TrimSpace(part), "(")
		n, err := strconv.ParseUint(numText, 10, 31)
		if err != nil {
			return nil, bad("is not a count, wanted N or N(xTIMES)")
		}
		times := uint64(1)
		if repeated {
			inner, ok := strings.CutSuffix(rest, ")")
			inner, ok2 := strings.CutPrefix(inner, "x")
			if times, err = strconv.ParseUint(inner, 10, 31); !ok || !ok2 || err != nil || times == 0 {
				return nil, bad("is not a count, wanted N or N(xTIMES)")
			}
		}
		if uint64(len(all))+times > maxNames {
			return nil, bad(fmt.Sprintf("makes more than %d nodes", maxNames))
		}
		for range times {
			all = append(all, int(n))
		}
		pos += len(part) + 1
	}
	return all, nil
}
