package push

import (
	"github.com/ashore-mesh/ashore/registry"
)

// An instance is registered in one registry. Where another control plane tells of a host and what it tells has, or had, an instance in
// common with what a registry of ours says, it reads the same registry: what it tells is an echo, which says nothing that we do not
// know, and may be old. Without one in common it is another registry, and both count.

// hear finds which hosts are echoes by what is said of them now. An echo stays one for as long as it is told. The groups of those
// that have become one are to be said anew.
func (a *adopter) hear(hosts map[string]spots) (turned map[sourceGroup]bool) {
	turned = map[sourceGroup]bool{}
	for host := range hosts {
		relayed := a.relayed(host)
		switch {
		case len(relayed) == 0:
			delete(a.echoes, host)
		case !a.echoes[host] && a.common(host):
			a.echoes[host] = true
			for _, at := range relayed {
				turned[at] = true
			}
		}
	}
	return turned
}

// hearAnew is hear where the sources are others: what was an echo of one that is gone is not any more.
func (a *adopter) hearAnew(hosts map[string]spots) (turned map[sourceGroup]bool) {
	before := a.echoes
	a.echoes = map[string]bool{}
	turned = a.hear(hosts)
	for host := range before {
		for _, at := range a.relayed(host) {
			turned[at] = true
		}
	}
	return turned
}

// relayed are the groups of a host that other control planes' registries know.
func (a *adopter) relayed(host string) (out []sourceGroup) {
	for at := range a.hosts[host] {
		if items := a.said[at].Items; len(items) > 0 && items[0].Service.Relayed {
			out = append(out, at)
		}
	}
	return out
}

// common says that a registry of ours and one elsewhere have an instance of a host in common.
func (a *adopter) common(host string) bool {
	ours := map[string]bool{}
	a.eachEndpoint(host, false, func(e *registry.Endpoint) { ours[e.Address] = true })
	found := false
	a.eachEndpoint(host, true, func(e *registry.Endpoint) { found = found || ours[e.Address] })
	return found
}

// eachEndpoint calls f with the endpoints of a host, of those that are relayed or of the others.
func (a *adopter) eachEndpoint(host string, relayed bool, f func(*registry.Endpoint)) {
	for at := range a.hosts[host] {
		for _, in := range a.said[at].Items {
			if in.Service.Host != host || in.Service.Relayed != relayed {
				continue
			}
			for i := range in.Endpoints.All() {
				f(&in.Endpoints.Items[i])
			}
		}
	}
}
