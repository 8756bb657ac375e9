// Package discover turns a file tree rooted at / (an fs.FS: the live machine,
// a fixture, a snapshot, a remote host's snapshot) into a topology.Host. It
// also owns the snapshot format, one host as one text file, and NCCL's
// topology XML in and out. Every source goes through the same code.
package discover
