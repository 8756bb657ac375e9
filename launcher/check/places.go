package check

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"fabrun/topology"
	"fabrun/topology/finding"
)

func (l *look) places(role string, f func(p topology.Place)) {
	for _, p := range l.h.Places {
		if p.Role == role {
			f(p)
		}
	}
}

// missingText says in words why a path cannot be used.
func missingText(reason string) string {
	switch reason {
	case "ENOENT":
		return "not there"
	case "EACCES":
		return "there, but may not be used (EACCES)"
	case "EISDIR":
		return "a directory"
	case "ENOTDIR":
		return "no directory"
	}
	return "unusable: " + reason
}

func checkProgram(l *look) {
	l.places(topology.RoleProgram, func(p topology.Place) {
		if p.Missing != "" {
			l.say(finding.Error, p.Path, missingText(p.Missing), "an executable, as on the other hosts", "the ranks of this host cannot start", "install it here at the same path, or put it on a file system that all hosts mount")
		}
	})
}

func checkDirectory(l *look) {
	l.places(topology.RoleDirectory, func(p topology.Place) {
		if p.Missing != "" {
			l.say(finding.Error, p.Path, missingText(p.Missing), "the job's working directory", "ranks start elsewhere (in the home directory) or not at all", "start the job from a directory that all hosts mount, or make it here: mkdir -p "+shellWord(p.Path))
		}
	})
}

// shellWord quotes a path for a line that people paste.
func shellWord(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@%") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func checkLibraries(l *look) {
	var none, path []string
	l.places(topology.RoleLibrary, func(p topology.Place) {
		switch p.Missing {
		case "":
		case topology.OnlyByLibraryPath:
			path = append(path, p.Detail)
		default:
			none = append(none, p.Detail)
		}
	})
	if none != nil {
		l.say(finding.Error, "libraries", "not found: "+few(none, 6), "all that the program needs", "the program does not start: 'error while loading shared libraries'", "install them here, or add their directory to LD_LIBRARY_PATH in a file that non-interactive logins read")
	}
	if path != nil {
		l.say(finding.Note, "libraries", "found only by the LD_LIBRARY_PATH of the machine that starts the job: "+few(path, 6), "found by this host too", "ranks find them only if the launcher forwards the variable", "mpirun -x LD_LIBRARY_PATH …; srun does it by itself")
	}
}

// few joins the first n of a list.
func few(list []string, n int) string {
	if len(list) <= n {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:n], ", "), len(list)-n)
}

// fabricLibraries begin the sonames of libraries that talk to the same library
// on the other hosts: there another build may mean another protocol.
var fabricLibraries = []string{
	"libmpi", "libopen-pal", "libopen-rte", "libmpich", "libucp", "libuct", "libucs", "libucm", "libfabric", "libpsm", "libnccl", "librccl",
	"libnvshmem", "libibverbs", "librdmacm", "libpmix", "libprrte", "libhcoll", "libsharp", "libcudart", "libcuda", "libgloo", "libtorch",
}

// placeFacts are what hosts of one job should have in common at its paths.
func placeFacts(h topology.Host, add func(id, subject, value string, sev finding.Severity, why string)) {
	for _, p := range h.Places {
		switch p.Role {
		case topology.RoleProgram:
			add("program", p.Path, p.ID, finding.Error, "ranks run different programs")
		case topology.RoleLibrary:
			sev, why := finding.Note, "another build of a library that the program loads"
			if slices.ContainsFunc(fabricLibraries, func(f string) bool { return strings.HasPrefix(p.Detail, f) }) {
				sev, why = finding.Warning, "hosts that load different builds may not talk to each other"
			}
			add("library", p.Detail, libraryID(p), sev, why)
		case topology.RoleDirectory:
			if p.Missing == "" {
				add("directory", p.Path, p.Mount, finding.Warning, "the hosts do not work on the same files")
			}
		}
	}
}

func libraryID(p topology.Place) string {
	if p.ID == "" {
		return ""
	}
	return fmt.Sprintf("%s (%s)", p.ID, path.Dir(p.Path))
}

// ownDirectories is a note where every host works in a directory of its own.
func ownDirectories(hosts []topology.Host) []finding.Finding {
	own := map[string]int{}
	var order []string
	for _, h := range hosts {
		for _, p := range h.Places {
			if p.Role == topology.RoleDirectory && p.Missing == "" && p.Mount != "" && !p.Shared() {
				if own[p.Path] == 0 {
					order = append(order, p.Path)
				}
				own[p.Path]++
			}
		}
	}
	var out []finding.Finding
	for _, dir := range order {
		if n := own[dir]; n > 1 {
			out = append(out, finding.Finding{
				ID: "across.directory", Severity: finding.Note, Subject: dir, Seen: fmt.Sprintf("on a local disk on each of %d hosts", n), Wanted: "one file system that all mount, or the same files on each",
				Why: "what one rank writes, ranks of other hosts do not see", Hint: "df " + shellWord(dir) + " on two hosts shows it",
			})
		}
	}
	return out
}
