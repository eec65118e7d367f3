package config

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// workloadEntry checks an endpoint: of a WorkloadEntry, a ServiceEntry, or the template of a WorkloadGroup.
func (c *checker) workloadEntry(path string, e *networking.WorkloadEntry) {
	// Envoy adds weights up in 32 bits
	const maxWeight = 1_000_000
	if e.Weight > maxWeight {
		c.errorf(path+".weight", "the weight is at most %d, not %d", maxWeight, e.Weight)
	}
	name, unix := strings.CutPrefix(e.Address, unixPrefix)
	switch {
	case c.object.Kind == WorkloadGroup:
		if e.Address != "" {
			c.warnf(path+".address", "this has no effect, because every workload registers its own address: remove it")
		}
	case e.Address == "" && e.Network != "":
		c.unsupported(path+".address", "a workload without address, behind the gateway of its network",
			"write its address")
	case e.Address == "":
		c.errorf(path+".address", "the address is missing: write an IP address, a host name or unix:///path")
	case unix:
		c.why(path+".address", checkUnix(name))
		c.refuse(path, present(e, "ports"), "a socket has no ports: remove them")
	case !isAddress(e.Address):
		c.why(path+".address", checkHost(e.Address))
	}
}

// checkNetwork is the rule for the names of networks.
func checkNetwork(name string) string { return checkLabel("network", name) }
