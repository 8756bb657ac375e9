package topology

import "slices"

// downStates are the physical states without a link (InfiniBand specification,
// PortPhysicalState). Drivers have printed others for links that are up.
var downStates = []string{"Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkErrorRecovery", "Phy Test"}

// Up says that the port is known to carry traffic.
func (p *Port) Up() bool {
	return (p.State == "ACTIVE" || p.State == "ACTIVE_DEFER") && !slices.Contains(downStates, p.PhysState)
}

// Down says that the port is known to carry none. Of a port whose state is not
// known neither holds.
func (p *Port) Down() bool {
	return p.State != "" && !p.Up() || slices.Contains(downStates, p.PhysState)
}

// StateText is what the port's state was read as: "DOWN, Polling".
func (p *Port) StateText() string {
	switch {
	case p.PhysState == "":
		return p.State
	case p.State == "":
		return p.PhysState
	}
	return p.State + ", " + p.PhysState
}
