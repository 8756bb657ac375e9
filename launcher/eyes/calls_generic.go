//go:build !amd64

package eyes

// olderCalls are those that younger architectures do without.
var olderCalls map[int]string
