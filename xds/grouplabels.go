package xds

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unique"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/registry/entry"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// labelled is a node with the labels and the probe of its WorkloadGroup.
type labelled struct {
	group *config.Object // whose labels and probe node has; nil: no group, and node is not set
	node  push.Node
}

// node is the proxy as policies and Sidecars select it: a workload that registered with a group has
// the group's labels and its own, as its endpoint has. A machine cannot escape a policy by claiming
// other labels.
func (st *stream) node(c Context) push.Node {
	if st.group == "" {
		return st.proxy.Node
	}
	o := c.Object(config.Key{Kind: config.WorkloadGroup, Namespace: st.proxy.Namespace, Name: st.group})
	if o == nil {
		return st.proxy.Node // the group is gone
	}
	if st.labelled.group != o {
		st.labelled = labelled{group: o, node: st.server.nodes.labelled(st.proxy.Node, o)}
	}
	return st.labelled.node
}

// labelled is n with the labels of a group, and the group's network, locality, probe,
// ProxyConfig and metrics.
func (ns *nodes) labelled(n push.Node, group *config.Object) push.Node {
	spec := group.Spec.(*networking.WorkloadGroup)
	own := make(map[string]string, len(n.Labels.Items()))
	for _, l := range n.Labels.Items() {
		own[l.Key] = l.Value
	}
	all := entry.GroupLabels(spec, own)
	labels := make([]push.Label, 0, len(all))
	for _, k := range slices.SortedFunc(maps.Keys(all), strings.Compare) {
		labels = append(labels, push.Label{Key: shared(k), Value: shared(all[k])})
	}
	n.Labels = ns.labels.Of(labels)
	n.Network = cmp.Or(n.Network, spec.GetTemplate().GetNetwork())
	n.Locality = cmp.Or(n.Locality, registry.ParseLocality(spec.GetTemplate().GetLocality()))
	var probe []byte
	if spec.GetProbe() != nil {
		probe = resource.Encode(spec.Probe)
	}
	n.Probe = unique.Make(string(probe))
	c, application := config.GroupSettings(group)
	n.ProxyConfig, n.Application = unique.Make(string(resource.Encode(c))), application
	return n
}
