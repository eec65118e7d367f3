package config

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// serviceEntry checks a service that an operator declares.
func (c *checker) serviceEntry(se *networking.ServiceEntry) {
	if len(se.Hosts) == 0 {
		c.errorf("spec.hosts", "the hosts are missing")
	}
	c.servicePorts(se)
	c.resolution(se)
	if len(se.SubjectAltNames) > 0 {
		c.warnf("spec.subjectAltNames",
			"these names are verified only where a DestinationRule for the host sets tls mode SIMPLE or MUTUAL")
	}
	if se.WorkloadSelector != nil {
		if len(se.Endpoints) > 0 {
			c.errorf("spec.workloadSelector", "only one of endpoints and workloadSelector can be set")
		}
		if len(se.WorkloadSelector.Labels) == 0 {
			c.warnf("spec.workloadSelector.labels",
				"without labels it selects all WorkloadEntries of this namespace: write labels")
		}
	}
	var names []string
	for _, p := range se.Ports {
		names = append(names, p.Name)
	}
	for i, e := range se.Endpoints {
		path := at("spec.endpoints", i)
		c.endpoint(path, se, e)
		for _, name := range slices.Sorted(maps.Keys(e.Ports)) {
			if !slices.Contains(names, name) {
				c.errorf(entry(path+".ports", name), "the service has no port of that name%s", didYouMean(name, names))
			}
		}
	}
}

// checkServiceHost is the rule for the names of services.
func checkServiceHost(host string) string {
	if host == "*" {
		return "a service cannot have the name of all hosts: name a domain, such as *.example.com"
	}
	return checkWildcardHost(host)
}

func suspectServiceHost(host string) string {
	if strings.Contains(host, ".") || checkServiceHost(host) != "" {
		return ""
	}
	return quote(host) + " is a short name, which other objects write out with their own namespace: use a full name, such as " +
		host + ".example.com"
}

func suspectProtocol(name string) string {
	if strings.EqualFold(name, "UDP") {
		return "UDP is not carried by the mesh: clients reach it directly"
	}
	return ""
}

// servicePorts checks that the ports of a service differ.
func (c *checker) servicePorts(se *networking.ServiceEntry) {
	if len(se.Ports) == 0 {
		c.warnf("spec.ports", "the service has no ports and gets no traffic: write number, name and protocol")
	}
	numbers, names := map[uint32]int{}, map[string]int{}
	for i, p := range se.Ports {
		path := at("spec.ports", i)
		if j, twice := numbers[p.Number]; twice {
			c.errorf(path+".number", "port %d is that of spec.ports[%d] too", p.Number, j)
		}
		if j, twice := names[p.Name]; twice && p.Name != "" {
			c.errorf(path+".name", "the name %s is that of spec.ports[%d] too", quote(p.Name), j)
		}
		numbers[p.Number], names[p.Name] = i, i
	}
}

// resolution checks that addresses, hosts and endpoints fit to how addresses are found.
func (c *checker) resolution(se *networking.ServiceEntry) {
	byDNS := se.Resolution == networking.ServiceEntry_DNS || se.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN
	switch {
	case se.Resolution == networking.ServiceEntry_NONE:
		const fixed = "with the resolution NONE (the default) connections go to the address that the client chose: "
		c.refuse("spec", present(se, "endpoints"), fixed+"remove the endpoints, or choose STATIC or DNS")
		if se.WorkloadSelector != nil {
			c.warnf("spec.workloadSelector", fixed+"choose STATIC or DNS")
		}
	case se.Resolution == networking.ServiceEntry_DYNAMIC_DNS:
		c.dynamicDNS(se)
	}
	if se.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN && len(se.Endpoints) > 1 {
		c.errorf("spec.endpoints", "with the resolution DNS_ROUND_ROBIN there is at most one endpoint: use DNS")
	}
	for i, h := range se.Hosts {
		if byDNS && len(se.Endpoints) == 0 && se.WorkloadSelector == nil && strings.Contains(h, "*") {
			c.errorf(at("spec.hosts", i),
				"a wildcard cannot be looked up by DNS: name a host, write endpoints, or use the resolution NONE")
		}
	}
	for i, a := range se.Addresses {
		if byDNS && strings.Contains(a, "/") {
			c.errorf(at("spec.addresses", i), "a block of addresses works with the resolutions NONE and STATIC only")
		}
	}
}

// dynamicDNS checks a service whose hosts are resolved as clients name them.
func (c *checker) dynamicDNS(se *networking.ServiceEntry) {
	const byHost = "with the resolution DYNAMIC_DNS connections go to the host that the client names: remove it, or choose DNS"
	c.refuse("spec", present(se, "addresses", "endpoints", "workloadSelector"), byHost)
	for i, h := range se.Hosts {
		if !strings.HasPrefix(h, "*") {
			c.errorf(at("spec.hosts", i), "the resolution DYNAMIC_DNS is for wildcards: write *.%s, or choose DNS", h)
		}
	}
	for i, p := range se.Ports {
		if !slices.Contains([]string{"HTTP", "HTTP2", "GRPC", "TLS"}, strings.ToUpper(p.Protocol)) {
			c.errorf(at("spec.ports", i)+".protocol", "with the resolution DYNAMIC_DNS the protocol is HTTP, HTTP2, GRPC or TLS, "+
				"in which clients name the host")
		}
	}
}

// endpoint checks one endpoint within a ServiceEntry.
func (c *checker) endpoint(path string, se *networking.ServiceEntry, e *networking.WorkloadEntry) {
	unix := strings.HasPrefix(e.Address, unixPrefix)
	switch {
	case e.Address == "": // reported by workloadEntry
	case unix && se.Resolution != networking.ServiceEntry_STATIC:
		c.errorf(path+".address", "a socket works with the resolution STATIC only")
	case unix && len(se.Ports) != 1:
		c.errorf(path+".address", "a socket works only for a service with one port")
	case !unix && se.Resolution == networking.ServiceEntry_STATIC && !isAddress(e.Address):
		c.errorf(path+".address", "%s is not an IP address: write one, or use the resolution DNS", quote(e.Address))
	}
}
