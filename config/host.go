package config

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
)

// ResolveHost is the full name of a host as operators write it: a name without dots is a service of
// namespace, "web" in shop is "web.shop.svc.<domain>". Names with a dot, wildcards and the empty
// string are full already.
// Source: istio.io VirtualService, Destination.host.
func ResolveHost(short, namespace, domain string) string {
	if short == "" || strings.ContainsAny(short, ".*:/") {
		return short
	}
	return short + "." + namespace + ".svc." + domain
}

// lowerHosts writes the hosts of o in lower case. Hosts have no case, and they are found by their
// text: a rule for Web.example would pass over web.example. o.Spec is not shared yet.
func lowerHosts(o *Object) {
	switch s := o.Spec.(type) {
	case *networking.VirtualService:
		lowerAll(s.Hosts)
		lowerRoutes(s)
	case *networking.DestinationRule:
		s.Host = strings.ToLower(s.Host)
		lowerSNI(s.TrafficPolicy)
		for _, subset := range s.Subsets {
			lowerSNI(subset.GetTrafficPolicy())
		}
	case *networking.ServiceEntry:
		lowerAll(s.Hosts)
		for _, e := range s.Endpoints {
			lowerAddress(e)
		}
	case *networking.WorkloadEntry:
		lowerAddress(s)
	case *networking.Gateway:
		for _, server := range s.Servers {
			lowerScoped(server.Hosts)
		}
	case *networking.Sidecar:
		for _, l := range s.Egress {
			lowerScoped(l.Hosts)
		}
		lowerDestination(s.GetOutboundTrafficPolicy().GetEgressProxy())
	}
}

// lowerRoutes is lowerHosts for the routes of a VirtualService.
func lowerRoutes(vs *networking.VirtualService) {
	for _, r := range vs.Http {
		for _, d := range r.Route {
			lowerDestination(d.Destination)
		}
		lowerDestination(r.Mirror)
		for _, m := range r.Mirrors {
			lowerDestination(m.Destination)
		}
	}
	for _, r := range vs.Tls {
		for _, m := range r.Match {
			lowerAll(m.SniHosts)
		}
		for _, d := range r.Route {
			lowerDestination(d.Destination)
		}
	}
	for _, r := range vs.Tcp {
		for _, d := range r.Route {
			lowerDestination(d.Destination)
		}
	}
}

func lowerDestination(d *networking.Destination) {
	if d != nil {
		d.Host = strings.ToLower(d.Host)
	}
}

func lowerSNI(p *networking.TrafficPolicy) {
	if t := p.GetTls(); t != nil {
		t.Sni = strings.ToLower(t.Sni)
	}
	for _, port := range p.GetPortLevelSettings() {
		if t := port.GetTls(); t != nil {
			t.Sni = strings.ToLower(t.Sni)
		}
	}
}

// lowerAddress leaves the paths of sockets alone.
func lowerAddress(e *networking.WorkloadEntry) {
	if !strings.HasPrefix(e.Address, unixPrefix) {
		e.Address = strings.ToLower(e.Address)
	}
}

func lowerAll(hosts []string) {
	for i, h := range hosts {
		hosts[i] = strings.ToLower(h)
	}
}

// lowerScoped leaves the namespaces before hosts alone, of which capitals are an error.
func lowerScoped(hosts []string) {
	for i, h := range hosts {
		slash := strings.IndexByte(h, '/') + 1
		hosts[i] = h[:slash] + strings.ToLower(h[slash:])
	}
}
