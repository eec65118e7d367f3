package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// validateServiceEntry checks a service that an operator declares.
func validateServiceEntry(c *checker) {
	se := spec[*networking.ServiceEntry](c)
	c.serviceHosts(se)
	c.addresses(se)
	c.servicePorts(se)
	c.resolution(se)
	c.exportTo("spec.exportTo", se.ExportTo, true)
	c.names("spec.subjectAltNames", se.SubjectAltNames)
	if len(se.SubjectAltNames) > 0 {
		c.warnf("spec.subjectAltNames",
			"these names are verified only where a DestinationRule for the host sets tls mode SIMPLE or MUTUAL")
	}
	if se.WorkloadSelector != nil {
		if len(se.Endpoints) > 0 {
			c.errorf("spec.workloadSelector", "only one of endpoints and workloadSelector can be set")
		}
		if len(se.WorkloadSelector.Labels) == 0 {
			c.errorf("spec.workloadSelector.labels",
				"the labels are missing: they choose the WorkloadEntries of this namespace")
		}
		c.labels("spec.workloadSelector.labels", se.WorkloadSelector.Labels)
	}
	known, names := make(map[string]bool, len(se.Ports)), make([]string, len(se.Ports))
	for i, p := range se.Ports {
		known[p.Name], names[i] = true, p.Name
	}
	for i, e := range se.Endpoints {
		path := at("spec.endpoints", i)
		c.endpoint(path, se, e)
		for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
			if !known[name] {
				c.errorf(entry(path+".ports", name), "the service has no port of that name%s", didYouMean(name, names))
			}
		}
	}
}

// serviceHosts checks the names of the service.
func (c *checker) serviceHosts(se *networking.ServiceEntry) {
	if len(se.Hosts) == 0 {
		c.errorf("spec.hosts", "the hosts are missing")
	}
	c.unique("spec.hosts", se.Hosts)
	for i, h := range se.Hosts {
		path := at("spec.hosts", i)
		switch {
		case h == "*":
			c.errorf(path, "a service cannot have the name of all hosts: name a domain, such as *.example.com")
		case checkWildcardHost(h) != "":
			c.why(path, checkWildcardHost(h))
		case !strings.Contains(strings.Trim(h, "."), "."):
			c.warnf(path, "%s is a short name, which other objects write out with their own namespace: use a full name, such as %s.example.com", quote(h), h)
		}
	}
}

// addresses checks the virtual addresses.
func (c *checker) addresses(se *networking.ServiceEntry) {
	c.unique("spec.addresses", se.Addresses)
	for i, a := range se.Addresses {
		c.why(at("spec.addresses", i), checkSubnet(a))
		if strings.Contains(a, "/") && se.Resolution != networking.ServiceEntry_NONE &&
			se.Resolution != networking.ServiceEntry_STATIC {
			c.errorf(at("spec.addresses", i), "a block of addresses works with the resolutions NONE and STATIC only")
		}
	}
}

// servicePorts checks the ports of the service.
func (c *checker) servicePorts(se *networking.ServiceEntry) {
	if len(se.Ports) == 0 {
		c.warnf("spec.ports", "the service has no ports and gets no traffic: write number, name and protocol")
	}
	numbers, names := map[uint32]int{}, map[string]int{}
	for i, p := range se.Ports {
		path := at("spec.ports", i)
		c.port(path+".number", p.Number)
		c.optionalPort(path+".targetPort", p.TargetPort)
		c.why(path+".name", checkPortName(p.Name))
		if p.Protocol != "" {
			c.protocol(path+".protocol", p.Protocol)
		}
		if strings.EqualFold(p.Protocol, "UDP") {
			c.warnf(path+".protocol", "UDP is not carried by the mesh: clients reach it directly")
		}
		if j, twice := numbers[p.Number]; twice {
			c.errorf(path+".number", "port %d is that of spec.ports[%d] too", p.Number, j)
		}
		if j, twice := names[p.Name]; twice && p.Name != "" {
			c.errorf(path+".name", "the name %s is that of spec.ports[%d] too", quote(p.Name), j)
		}
		numbers[p.Number], names[p.Name] = i, i
	}
}

// resolution checks that hosts and endpoints fit to how addresses are found.
func (c *checker) resolution(se *networking.ServiceEntry) {
	switch se.Resolution {
	case networking.ServiceEntry_NONE:
		if len(se.Endpoints) > 0 {
			c.errorf("spec.endpoints",
				"with the resolution NONE (the default) connections go to the address that the client chose: remove the endpoints, or choose STATIC or DNS")
		}
		if se.WorkloadSelector != nil {
			c.errorf("spec.workloadSelector",
				"with the resolution NONE (the default) connections go to the address that the client chose: choose STATIC or DNS")
		}
	case networking.ServiceEntry_STATIC: // one without endpoints may have those of registries
	case networking.ServiceEntry_DNS, networking.ServiceEntry_DNS_ROUND_ROBIN:
		c.resolvedHosts(se)
	default:
		c.unsupported("spec.resolution", se.Resolution.String(), "use DNS, or NONE for wildcards")
	}
}

// resolvedHosts checks what is looked up by DNS.
func (c *checker) resolvedHosts(se *networking.ServiceEntry) {
	if len(se.Endpoints) == 0 && se.WorkloadSelector == nil {
		for i, h := range se.Hosts {
			if strings.Contains(h, "*") {
				c.errorf(at("spec.hosts", i),
					"a wildcard cannot be looked up by DNS: name a host, write endpoints, or use the resolution NONE")
			}
		}
	}
	if se.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN && len(se.Endpoints) > 1 {
		c.errorf("spec.endpoints", "with the resolution DNS_ROUND_ROBIN there is at most one endpoint: use DNS")
	}
}

// endpoint checks one endpoint within a ServiceEntry.
func (c *checker) endpoint(path string, se *networking.ServiceEntry, e *networking.WorkloadEntry) {
	c.workload(path, e)
	_, unix := strings.CutPrefix(e.Address, unixPrefix)
	switch {
	case e.Address == "": // reported by workload
	case unix && se.Resolution != networking.ServiceEntry_STATIC:
		c.errorf(path+".address", "a socket works with the resolution STATIC only")
	case unix && len(se.Ports) != 1:
		c.errorf(path+".address", "a socket works only for a service with one port")
	case !unix && se.Resolution == networking.ServiceEntry_STATIC:
		if !isAddress(e.Address) {
			c.errorf(path+".address", "%s is not an IP address: write one, or use the resolution DNS", quote(e.Address))
		}
	}
}
