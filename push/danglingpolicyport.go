package push

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/registry"
)

// served is what something that may have a proxy takes connections at.
type served struct {
	labels map[string]string
	// targets are the ports where it listens, by port of the service; what is declared without a service
	// stands under its own.
	targets  map[uint32]uint32
	service  *registry.Service  // nil: none
	endpoint *registry.Endpoint // of the service; nil: none
	// chooses says that it is of whoever has these labels, as a Gateway or a Sidecar.
	chooses bool
	// servers are those of a Gateway; services of its proxies may map their ports.
	servers []*networking.Server
}

// policyPorts tells of ports in AuthorizationPolicies at which nobody listens whom they select, such as those of services whose
// workloads listen elsewhere: policies go by where the workload listens.
func (d *dangling) policyPorts() {
	var all map[string][]served
	for _, o := range d.context.authorization.byKey.All() {
		spec, ok := o.Spec.(*security.AuthorizationPolicy)
		if !ok || !namesPorts(spec) {
			continue
		}
		if all == nil {
			all = d.context.served()
		}
		some := d.context.selected(all, o)
		for i, r := range spec.Rules {
			for k, to := range r.GetTo() {
				d.listens(o, fmt.Sprintf("spec.rules[%d].to[%d].operation.ports", i, k), to.GetOperation().GetPorts(), some)
			}
			for k, w := range r.GetWhen() {
				if w.GetKey() == "destination.port" {
					d.listens(o, fmt.Sprintf("spec.rules[%d].when[%d].values", i, k), w.GetValues(), some)
				}
			}
		}
	}
}

// namesPorts says that a policy is about some ports.
func namesPorts(p *security.AuthorizationPolicy) bool {
	return slices.ContainsFunc(p.Rules, func(r *security.Rule) bool {
		return slices.ContainsFunc(r.GetTo(), func(to *security.Rule_To) bool { return len(to.GetOperation().GetPorts()) > 0 }) ||
			slices.ContainsFunc(r.GetWhen(), func(w *security.Condition) bool { return w.GetKey() == "destination.port" })
	})
}

// selected are those that a policy selects, none where none is known; the namespace "" is that of those whose own is not known.
func (c *Context) selected(all map[string][]served, o *config.Object) []served {
	var out, choosing []served
	ns, want := c.policyNamespace(o), selectorLabels(o)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if ns != "" && at != "" && at != ns {
			continue
		}
		for _, s := range all[at] {
			if selectsAll(want, s.labels) {
				out = append(out, s)
			} else if s.chooses {
				choosing = append(choosing, s)
			}
		}
	}
	if len(want) == 0 && !slices.ContainsFunc(out, func(s served) bool { return !s.chooses }) {
		return nil // a Gateway may be anywhere
	}
	workloads := out
	for _, c := range choosing {
		if slices.ContainsFunc(workloads, func(s served) bool { return !s.chooses && selectsAll(c.labels, s.labels) }) {
			out = append(out, c)
		}
	}
	return out
}

// listens checks the ports of one list. Where it is not known at which ports any listens nothing is said.
func (d *dangling) listens(o *config.Object, path string, ports []string, some []served) {
	at := map[uint32]bool{}
	for _, s := range some {
		for _, n := range s.targets {
			at[n] = true
		}
		d.context.serverPorts(s, some, at)
	}
	if len(at) == 0 {
		return
	}
	for i, text := range ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || at[uint32(n)] {
			continue
		}
		field := fmt.Sprintf("%s[%d]", path, i)
		if host, target := leadsTo(some, uint32(n), at); host == "" {
			d.warn(o.Key, field, "nothing is known of a workload that this selects and that listens at port %d (they listen at %s), so this matches nothing, unless one does at a port that is declared nowhere: write one of these, or declare it, "+
				"in a service or the ports of a WorkloadGroup", n, someNumbers(at))
		} else if !slices.Contains(ports, strconv.Itoa(int(target))) {
			d.warn(o.Key, field, "no workload that this selects listens at port %d, so this matches nothing: it is a port of the service %s, whose workloads listen at %d, and policies go by that: write %d", n, host, target, target)
		}
	}
}

// serverPorts adds to at where the proxies of a Gateway listen: on the ports that their services
// map, or, when no proxy is known, on those of the servers.
func (c *Context) serverPorts(gateway served, some []served, at map[uint32]bool) {
	add := func(targets []portTarget) {
		for _, s := range gateway.servers {
			if n := listenPort(s, targets); n != 0 {
				at[n] = true
			}
		}
	}
	known := false
	for _, s := range some {
		if len(gateway.servers) > 0 && s.endpoint != nil && selectsAll(gateway.labels, s.labels) {
			proxy := Target{Namespace: s.endpoint.Namespace, Address: s.endpoint.Address}.node()
			add(c.targetPorts(proxy).Items())
			known = true
		}
	}
	if !known {
		add(nil)
	}
}

// leadsTo is the service with a port and where its workloads listen, one of at; no host: there is none.
func leadsTo(some []served, port uint32, at map[uint32]bool) (host string, target uint32) {
	for _, s := range some {
		if n, ok := s.targets[port]; ok && s.service != nil && at[n] {
			return s.service.Host, n
		}
	}
	return "", 0
}

// someNumbers is a list of ports for people.
func someNumbers(ports map[uint32]bool) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		out = append(out, strconv.Itoa(int(n)))
	}
	return some(out)
}

// served finds where all that may have a proxy listen, by namespace.
func (c *Context) served() map[string][]served {
	out := map[string][]served{}
	for k, l := range c.in.Endpoints.All() {
		s := c.in.Services.At(k)
		if s == nil || s.External {
			continue
		}
		for i := range l.All() {
			ep := &l.Items[i]
			x := served{labels: ep.Labels, targets: make(map[uint32]uint32, len(s.Ports)), service: s, endpoint: ep}
			for _, p := range s.Ports {
				if n := ep.Port(p); n != 0 {
					x.targets[p.Number] = n
				}
			}
			out[ep.Namespace] = append(out[ep.Namespace], x)
		}
	}
	for _, kind := range []config.Kind{config.WorkloadEntry, config.WorkloadGroup, config.Gateway, config.Sidecar} {
		for k, o := range c.in.Objects.From(config.Key{Kind: kind}) {
			if k.Kind != kind {
				break
			}
			if namespace, x := declared(c.policyNamespace(o), o); len(x.targets)+len(x.servers) > 0 {
				out[namespace] = append(out[namespace], x)
			}
		}
	}
	return out
}

// declared is where something listens by an object that is no service: of workloads, of gateways, and by the ingress of a Sidecar.
func declared(namespace string, o *config.Object) (string, served) {
	x := served{targets: map[uint32]uint32{}}
	own := func(n uint32) {
		if n != 0 {
			x.targets[n] = n
		}
	}
	switch s := o.Spec.(type) {
	case *networking.WorkloadEntry:
		x.labels = s.Labels
		for _, n := range s.Ports {
			own(n)
		}
	case *networking.WorkloadGroup:
		x.labels = groupLabels(s)
		for _, n := range s.GetTemplate().GetPorts() {
			own(n)
		}
	case *networking.Gateway:
		namespace, x.labels, x.chooses, x.servers = "", s.Selector, true, s.Servers
	case *networking.Sidecar:
		x.labels, x.chooses = s.GetWorkloadSelector().GetLabels(), true
		for _, in := range s.Ingress {
			own(in.GetPort().GetNumber())
		}
	}
	return namespace, x
}

// groupLabels are those of the members of a group.
func groupLabels(g *networking.WorkloadGroup) map[string]string {
	out := maps.Clone(g.GetTemplate().GetLabels())
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, g.GetMetadata().GetLabels())
	return out
}
