package adminapi

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/admin"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/authz"
)

// Describe returns what applies to a service or a workload. Errors: admin.ErrNotFound if it is
// unknown, admin.ErrConflict before there is any configuration.
func (a *API) Describe(ctx context.Context, q admin.DescribeQuery) (admin.Description, error) {
	out := admin.Description{Services: []admin.Service{}, Objects: []admin.AppliedObject{}}
	c, err := a.current()
	if err != nil {
		return out, err
	}
	hosts := map[string]bool{}
	targets := authz.Targets(c, strings.ToLower(q.Service), 0)
	if q.Service != "" {
		hosts[strings.ToLower(q.Service)] = true
	} else {
		targets = a.workloadTargets(c, q.Workload)
		for _, t := range targets {
			hosts[t.Host] = true
		}
		if len(targets) == 0 {
			return out, notFound("there is no workload %q: write NAMESPACE/NAME, an address or the ID "+
				"of a proxy; \"ashorectl get endpoints -o wide\" and \"ashorectl proxy-status\" list them", q.Workload)
		}
	}
	delete(hosts, "") // of a proxy that serves nothing
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		found, err := a.Services(ctx, admin.ServiceQuery{Host: host, Endpoints: true})
		if err != nil {
			return out, err
		}
		for _, s := range found {
			if q.Workload != "" {
				s.Endpoints = slices.DeleteFunc(s.Endpoints, func(ep admin.Endpoint) bool { return !serves(targets, ep) })
			}
			out.Services = append(out.Services, s)
		}
		out.Objects = append(out.Objects, appliedObjects(c, host)...)
	}
	if len(targets) > 0 && targets[0].Type == push.Router {
		out.Objects = append(out.Objects, gatewayObjects(c.Scope(c.Classify(targets[0].Node())))...)
	}
	out.Workloads = workloadPolicies(c, targets)
	return out, nil
}

// workloadTargets returns the ports of the connected proxies of that name, or else of the endpoints.
func (a *API) workloadTargets(c *push.Context, name string) []authz.Target {
	var out []authz.Target
	for _, p := range a.Connected() {
		if p.ID == name || isNamed(p.Node, name) {
			out = append(out, proxyTargets(c, p.Node)...)
		}
	}
	if len(out) > 0 {
		return out
	}
	return authz.Targets(c, name, 0)
}

// isNamed reports whether name is a proxy's ID, NAMESPACE/NAME or an address of it. In
// NAMESPACE/NAME, the ID may lack its suffix, the namespace.
func isNamed(n push.Node, name string) bool {
	short := strings.TrimSuffix(n.ID, "."+n.Namespace)
	if name == n.ID || name == n.Namespace+"/"+n.ID || name == n.Namespace+"/"+short {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && slices.Contains(n.IPs.Items(), address)
}

// proxyTargets returns the ports of a proxy: one target with port zero if it serves none.
func proxyTargets(c *push.Context, n push.Node) []authz.Target {
	for _, ip := range n.IPs.Items() {
		if found := authz.Targets(c, ip.String(), 0); len(found) > 0 {
			for i := range found {
				found[i].Type = n.Type
			}
			return found
		}
	}
	return []authz.Target{authz.TargetOf(n)}
}

// serves reports whether an endpoint is of one of targets.
func serves(targets []authz.Target, ep admin.Endpoint) bool {
	return slices.ContainsFunc(targets, func(t authz.Target) bool {
		return t.Address == ep.Address && t.Namespace == ep.Namespace
	})
}

// appliedObjects returns the VirtualServices and DestinationRules of a host.
func appliedObjects(c *push.Context, host string) (out []admin.AppliedObject) {
	for vs := range c.VirtualServices() {
		effect := ""
		for _, to := range vs.Destinations() {
			if to.Host == host {
				effect = "sends requests for " + strings.Join(vs.Spec.Hosts, ", ") + " to it"
			}
		}
		if slices.ContainsFunc(vs.Spec.Hosts, func(h string) bool { return push.HostsOverlap(h, host) }) {
			effect = "routes requests for " + host
		}
		if effect != "" {
			effect += ", gateways: " + strings.Join(vs.Spec.Gateways, ", ")
			out = append(out, admin.AppliedObject{Place: placeOf(vs.Object), Effect: effect})
		}
	}
	var rules []*config.Object
	for key, s := range c.Inputs().Services.From(registry.Key{Host: host}) {
		if key.Host != host {
			break
		}
		for _, namespace := range c.ClientNamespaces() {
			r := c.RuleFor(namespace, s)
			if r == nil {
				continue
			}
			for _, o := range r.From {
				if !slices.Contains(rules, o) {
					rules = append(rules, o)
				}
			}
		}
	}
	for _, o := range rules {
		out = append(out, admin.AppliedObject{Place: placeOf(o), Effect: ruleEffect(o)})
	}
	return out
}

// gatewayObjects returns the Gateways of a proxy, each with its VirtualServices.
func gatewayObjects(sc *push.Scope) (out []admin.AppliedObject) {
	for _, g := range sc.Gateways.Items() {
		out = append(out, admin.AppliedObject{Place: placeOf(g.Gateway), Effect: fmt.Sprintf(
			"serves %s at port %d, hosts: %s", g.Server.Port.Protocol, g.Port, strings.Join(g.Server.Hosts, ", "))})
		for _, vs := range g.Routes.Items() {
			out = append(out, admin.AppliedObject{Place: placeOf(vs.Object),
				Effect: fmt.Sprintf("routes requests for %s at port %d", strings.Join(vs.Spec.Hosts, ", "), g.Port)})
		}
	}
	return out
}

// ruleEffect is what a DestinationRule sets: its TLS mode and subsets.
func ruleEffect(o *config.Object) string {
	spec := o.Spec.(*networking.DestinationRule)
	effect := "client TLS: automatic"
	if tls := spec.GetTrafficPolicy().GetTls(); tls != nil {
		effect = "client TLS: " + tls.Mode.String()
	}
	var names []string
	for _, s := range spec.Subsets {
		names = append(names, s.Name)
	}
	if len(names) > 0 {
		effect += ", subsets: " + strings.Join(names, ", ")
	}
	return effect
}

// workloadPolicies returns the mode of mutual TLS and the policies of targets.
func workloadPolicies(c *push.Context, targets []authz.Target) []admin.WorkloadPolicies {
	out := []admin.WorkloadPolicies{}
	for _, t := range targets {
		sc := c.Scope(c.Classify(t.Node()))
		mode := peerMode(sc, t.Port)
		if t.Type == push.Router {
			mode = "as its Gateways say"
		}
		one := admin.WorkloadPolicies{At: []string{place(t)}, MutualTLS: mode, Policies: []string{}}
		for _, list := range [][]*config.Object{sc.AuthorizationPolicy.Items(), sc.RequestAuthentication.Items(),
			sc.Telemetry.Items()} {
			for _, o := range list {
				one.Policies = append(one.Policies, o.Key.String())
			}
		}
		for _, p := range sc.Patches.Items() {
			if name := p.Filter.Key.String(); !slices.Contains(one.Policies, name) {
				one.Policies = append(one.Policies, name)
			}
		}
		if sc.Sidecar != nil {
			one.Policies = append(one.Policies, sc.Sidecar.Object.Key.String())
		}
		same := slices.IndexFunc(out, func(w admin.WorkloadPolicies) bool {
			return w.MutualTLS == one.MutualTLS && slices.Equal(w.Policies, one.Policies)
		})
		if same < 0 {
			out = append(out, one)
		} else {
			out[same].At = append(out[same].At, one.At...)
		}
	}
	return out
}

// peerMode is how a port takes connections, and what says so.
func peerMode(sc *push.Scope, port uint32) string {
	mode, by := sc.PeerModeAt(port)
	name := map[push.PeerMode]string{push.PeerPermissive: "PERMISSIVE", push.PeerStrict: "STRICT",
		push.PeerDisable: "DISABLE"}[mode]
	if by == nil {
		return name + " (default)"
	}
	return name + ", by " + by.Key.String()
}
