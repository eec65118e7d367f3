package consul

import (
	"net/netip"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/ashore-mesh/ashore/config"
	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
)

// A sidecar finds what it serves by its registration in Consul, and where it runs; also while a check is critical, so that what
// asks the application through its sidecar can see it get well.
func TestOwn(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"passing", "critical"} {
		in := push.Inputs{Mesh: &push.Mesh{Config: config.DefaultMesh(), Domain: "cluster.local"}}
		said := convert(read(func(o *Options) { o.Namespace = "shop" }), place{}, "web", []*api.ServiceEntry{
			entry("web-1", checks(state), meta("ashore-port", "80", "ashore-locality", "eu/z1")), entry("web-2", at("10.1.0.2", 8080)),
		})
		for _, i := range said.instances {
			in.Services, in.Endpoints = in.Services.With(i.Service.Key, i.Service), in.Endpoints.With(i.Service.Key, i.Endpoints)
		}
		node := func(namespace string) push.Node {
			var ips intern.Lists[netip.Addr]
			var labels intern.Lists[push.Label]
			return push.Node{Namespace: namespace, IPs: ips.Of([]netip.Addr{netip.MustParseAddr("10.1.0.1")}), Labels: labels.Of(nil)}
		}
		c := push.Build(nil, in)
		own := c.Classify(node("shop")).Own.Inbound.Items()
		if len(own) != 2 || own[0].TargetPort != 8080 || own[0].Port.Number != 80 || own[0].Service.Host != "web.service.consul" {
			t.Errorf("%s: it serves %+v", state, own)
		}
		if own := c.Classify(node("other")).Own.Inbound.Items(); len(own) != 0 {
			t.Errorf("%s: of another namespace, it serves %+v", state, own)
		}
	}
}
