// Package contract holds a running job to what its plan promised: so many rails of
// such a rate, and the addresses by which they are reached. Samples and events of all
// nodes go in; what was lost, since when, and what that cost comes out. It knows no
// clock but that of the samples.
package contract
