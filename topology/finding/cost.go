package finding

// What a hint costs whoever follows it, beyond the job that it is about. A hint
// with a command that changes what others use ends in one of these.
const (
	ForPort   = " (as root; for all traffic of the port, and alike on the switch and on every host)"
	ForRDMA   = " (as root; for everything that uses RDMA on this port)"
	ForHost   = " (as root; for everything on this host)"
	Reboots   = " (takes a reboot: drain the node first)"
	InCard    = " (as root; kept in the adapter and in force after its reset, which ends what runs over it)"
	OnPurpose = "; first see that nobody switched it off on purpose"
)
