package route

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
)

// hostPort is "host:port", an IPv6 address in brackets.
func hostPort(host string, port uint32) string {
	return authority(host) + portSuffix(port)
}

// portSuffix is ":port".
func portSuffix(port uint32) string { return ":" + strconv.FormatUint(uint64(port), 10) }

// authority is host as it stands in a request: an IPv6 address in brackets.
func authority(host string) string {
	if strings.IndexByte(host, ':') < 0 {
		return host
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

// servicePort is a port of a service.
type servicePort struct {
	service *registry.Service
	port    registry.Port
}

// routable says that requests to the port are routed: it speaks HTTP, or may.
func routable(p registry.Protocol) bool { return p.IsHTTP() || p == registry.Unknown }

// serviceHostsIn is everything that the hosts of one port depend on, routes aside.
type serviceHostsIn struct {
	services *intern.List[*registry.Service]
	// only, when not nil, is the only service, and takes all requests.
	only *registry.Service
	port uint32
	// withPorts writes the port behind every domain.
	withPorts bool
	// domain is the mesh's suffix of short names.
	domain string
	// namespace is that of clients in a cluster of Kubernetes, which use the bare names of its services.
	namespace string
}

// serviceHosts are the services of one port and their domains. Immutable.
type serviceHosts struct {
	items []serviceHost // in the order of hosts
	// index are the indexes in items by host.
	index map[string]int
	// owner is the index in items of the one that has a domain.
	owner map[string]int
}

// serviceHost is a service of a port, and its domains.
type serviceHost struct {
	service *registry.Service
	name    string // that of its virtual host
	domains *intern.List[string]
}

// ports lists the services that take requests at the port.
func (in serviceHostsIn) ports() []servicePort {
	services := in.services.Items()
	if in.only != nil {
		services = []*registry.Service{in.only}
	}
	var out []servicePort
	for _, s := range services {
		for _, p := range s.Ports {
			if p.Number == in.port && routable(p.Protocol) {
				out = append(out, servicePort{s, p})
			}
		}
	}
	return out
}

// findServices gives every service of a port its domains, each domain to one service: its own host
// first of all; of short names and addresses the older service has them. Source: Envoy refuses a
// route configuration in which a domain stands twice.
func (g *Generator) findServices(in serviceHostsIn) *serviceHosts {
	ports := in.ports()
	out := &serviceHosts{items: make([]serviceHost, len(ports)), index: make(map[string]int, len(ports)),
		owner: make(map[string]int, 3*len(ports))}
	domains := make([][]string, len(ports))
	claim := func(i int, names ...string) {
		for _, d := range names {
			if _, taken := out.owner[d]; !taken {
				out.owner[d] = i
				domains[i] = append(domains[i], d)
			}
		}
	}
	for i, p := range ports {
		if in.only != nil {
			claim(i, envoy.AnyDomain)
		} else {
			claim(i, in.written(p, p.service.Host)...)
		}
	}
	for _, i := range byAge(ports) {
		if in.only == nil {
			for _, name := range in.otherNames(ports[i].service) {
				claim(i, in.written(ports[i], name)...)
			}
		}
	}
	for i, p := range ports {
		out.index[p.service.Host] = i
		out.items[i] = serviceHost{p.service, hostPort(p.service.Host, in.port), g.names.Of(domains[i])}
	}
	return out
}

// byAge lists the indexes of ports, that of the oldest service first.
func byAge(ports []servicePort) []int {
	out := make([]int, len(ports))
	for i := range out {
		out[i] = i
	}
	slices.SortFunc(out, func(a, b int) int {
		s, o := ports[a].service, ports[b].service
		return cmp.Or(s.CompareAge(o), s.Key.Compare(o.Key))
	})
	return out
}

// written lists the forms of a name in requests to p.
func (in serviceHostsIn) written(p servicePort, name string) []string {
	name = authority(name)
	if !in.withPorts {
		if isName(name) {
			return []string{name, name + "."}
		}
		return []string{name}
	}
	out := []string{name + portSuffix(p.port.Number)}
	if in.bare(p) {
		out = append(out, name)
	}
	return out
}

// isName says that a domain is the full name of one host, which clients may also write with a dot
// at the end.
func isName(domain string) bool {
	return !strings.HasPrefix(domain, "*") && !strings.HasSuffix(domain, ".") && !strings.HasPrefix(domain, "[") &&
		!isAddress(domain)
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// bare says that requests which name no port mean p: port 80, or else the only one.
func (in serviceHostsIn) bare(p servicePort) bool {
	const defaultPort = 80
	only := true
	for _, o := range p.service.Ports {
		if routable(o.Protocol) && o.Number != p.port.Number {
			if o.Number == defaultPort {
				return false
			}
			only = false
		}
	}
	return only || p.port.Number == defaultPort
}

// otherNames are what else clients call a service: the shorter forms of
// "name.namespace.svc.<domain>" that mean the same to everybody, and its virtual addresses. The
// bare name is not among them, but for Pods: it would make the routes of every namespace different.
// Source: Istio, but for the bare name.
func (in serviceHostsIn) otherNames(s *registry.Service) []string {
	var out []string
	if rest, ok := strings.CutSuffix(s.Host, ".svc."+in.domain); ok && in.domain != "" {
		if strings.Contains(rest, ".") && !strings.HasPrefix(rest, "*") {
			out = append(out, rest, rest+".svc")
			if name, ok := strings.CutSuffix(rest, "."+in.namespace); ok {
				out = append(out, name)
			}
		}
	}
	for _, p := range s.VirtualIPs() {
		if p.IsSingleIP() && !p.Addr().IsUnspecified() {
			out = append(out, p.Addr().String())
		}
	}
	return out
}
