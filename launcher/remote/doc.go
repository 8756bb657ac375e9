// Package remote runs something on many hosts: by its own ssh client, by the
// system's ssh, or by srun inside an allocation. Bounded, with a deadline per
// host, host keys checked, cancellation that ends the remote process too. It
// moves bytes and knows nothing of what they mean.
package remote
