package adminapi

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/spiffe"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds"
)

// proxy returns the connected proxy with an ID.
func (e Explainer) proxy(id string) (xds.ProxyStatus, bool) {
	for _, p := range e.Proxies() {
		if p.ID == id || p.Node.ID == id {
			return p, true
		}
	}
	return xds.ProxyStatus{}, false
}

// proxyNamed returns the connected proxy of a workload called "shop/api-1".
func (e Explainer) proxyNamed(name string) (xds.ProxyStatus, bool) {
	namespace, workload, ok := strings.Cut(name, "/")
	if !ok {
		return xds.ProxyStatus{}, false
	}
	return e.proxy(workload + "." + namespace)
}

// workloadEntry returns the WorkloadEntry called "shop/api-1", or nil.
func workloadEntry(c *push.Context, name string) *config.Object {
	namespace, workload, _ := strings.Cut(name, "/")
	return c.Inputs().Objects.At(config.Key{Kind: config.WorkloadEntry, Namespace: namespace, Name: workload})
}

// nodeNamed returns the proxy of a workload called "shop/api-1": a connected one, or the one that
// its WorkloadEntry describes.
func (e Explainer) nodeNamed(c *push.Context, name string) (push.Node, bool) {
	if p, ok := e.proxyNamed(name); ok {
		return p.Node, true
	}
	o := workloadEntry(c, name)
	if o == nil {
		return push.Node{}, false
	}
	spec := o.Spec.(*networking.WorkloadEntry)
	all := map[string]string{}
	maps.Copy(all, o.Labels)
	maps.Copy(all, spec.Labels)
	var labels []push.Label
	for k, v := range all {
		labels = append(labels, push.Label{Key: k, Value: v})
	}
	slices.SortFunc(labels, func(a, b push.Label) int { return cmp.Compare(a.Key, b.Key) })
	n := push.Node{ID: o.Name + "." + o.Namespace, Namespace: o.Namespace, Identity: spec.ServiceAccount != "",
		Labels: new(intern.Lists[push.Label]).Of(labels)}
	if a, err := netip.ParseAddr(spec.Address); err == nil {
		n.IPs = new(intern.Lists[netip.Addr]).Of([]netip.Addr{a.Unmap()})
	}
	return n, true
}

// identityNamed returns the identity of a workload called "shop/api-1": that of its connected
// proxy, or the one that an endpoint or a WorkloadEntry declares. It returns false if there is no
// such workload, or if a workload has the service account of that name.
func (e Explainer) identityNamed(c *push.Context, name string) (spiffe.ID, bool) {
	namespace, workload, ok := strings.Cut(name, "/")
	if !ok {
		return spiffe.ID{}, false
	}
	var account entry.Account
	in := c.Inputs()
	for _, list := range in.Endpoints.All() {
		for i := range list.Len() {
			switch ep := &list.Items[i]; {
			case ep.Namespace == namespace && ep.ServiceAccount == workload:
				return spiffe.ID{}, false
			case ep.Namespace == namespace && ep.Workload == workload && ep.ServiceAccount != "":
				account = entry.Account{Namespace: namespace, Name: ep.ServiceAccount}
			}
		}
	}
	if p, ok := e.proxyNamed(name); ok {
		return p.Who.Identity, true
	}
	if o := workloadEntry(c, name); account.Name == "" && o != nil {
		account = entry.AccountOf(o)
	}
	id, err := spiffe.New(in.Mesh.TrustDomains()[0], account.Namespace, account.Name)
	return id, err == nil // it is an error if account is empty
}
