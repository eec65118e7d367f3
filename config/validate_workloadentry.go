package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// validateWorkloadEntry checks one workload outside of any ServiceEntry.
func validateWorkloadEntry(c *checker) {
	c.workload("spec", spec[*networking.WorkloadEntry](c))
}

// workload checks an endpoint, within a ServiceEntry or by itself.
func (c *checker) workload(path string, e *networking.WorkloadEntry) {
	name, unix := strings.CutPrefix(e.Address, unixPrefix)
	switch {
	case e.Address == "" && e.Network != "":
		c.unsupported(path+".address", "a workload without address, behind the gateway of its network",
			"write its address")
	case e.Address == "":
		c.errorf(path+".address", "the address is missing: write an IP address, a host name or unix:///path")
	case unix:
		c.why(path+".address", checkUnix(name))
		if len(e.Ports) > 0 {
			c.errorf(path+".ports", "a socket has no ports: remove them")
		}
	case !isAddress(e.Address):
		c.why(path+".address", checkHost(e.Address))
	}
	c.workloadSettings(path, e)
}

// workloadSettings checks all of an endpoint but its address.
func (c *checker) workloadSettings(path string, e *networking.WorkloadEntry) {
	// Envoy adds weights up in 32 bits
	const maxWeight = 1_000_000
	for _, port := range slices.Sorted(maps.Keys(e.Ports)) {
		c.why(entry(path+".ports", port), checkPortName(port))
		c.port(entry(path+".ports", port), e.Ports[port])
	}
	c.labels(path+".labels", e.Labels)
	if e.Locality != "" {
		c.why(path+".locality", checkLocality(e.Locality))
	}
	if e.Network != "" {
		c.why(path+".network", checkLabel("network", e.Network))
	}
	if e.ServiceAccount != "" {
		c.why(path+".serviceAccount", checkObjectName(e.ServiceAccount))
	}
	if e.Weight > maxWeight {
		c.errorf(path+".weight", "the weight is at most %d, not %d", maxWeight, e.Weight)
	}
}
