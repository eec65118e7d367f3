package push_test

import (
	"net/netip"
	"testing"

	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
)

// A proxy connects to the virtual IP that a service has in its own cluster.
func TestAddressesByCluster(t *testing.T) {
	t.Parallel()
	e := newEditor()
	e.service("a", "web.a")
	e.service("a", "db.a")
	key := registry.Key{Host: "web.a", Namespace: "a"}
	web := *e.in.Services.At(key)
	web.Cluster, web.Addresses = "east", []netip.Prefix{netip.MustParsePrefix("10.96.0.1/32")}
	web.OtherAddresses = map[string][]netip.Prefix{"west": {netip.MustParsePrefix("10.96.0.2/32")}}
	e.in.Services = e.in.Services.With(key, &web)
	first := push.Build(nil, e.in)
	second := push.Build(first, e.in)
	for cluster, want := range map[string]string{"east": "10.96.0.1/32", "west": "10.96.0.2/32", "": "10.96.0.1/32",
		"other": "10.96.0.1/32"} {
		n := node("b", "10.9.0.1")
		if cluster != "" {
			n.Metadata = labelLists.Of([]push.Label{{Key: "CLUSTER_ID", Value: cluster}})
		}
		f := first.Classify(n)
		if known := cluster == "east" || cluster == "west"; (f.Cluster != "") != known || (f.Namespace != "") != known {
			t.Errorf("the facets of a proxy in cluster %q have %q and namespace %q", cluster, f.Cluster, f.Namespace)
		}
		d, _ := first.Scope(f).Destinations.Get("web.a")
		if got := d.Service.Addresses[0].String(); got != want {
			t.Errorf("in cluster %q the address is %s, want %s", cluster, got, want)
		}
		if again, _ := second.Scope(second.Classify(n)).Destinations.Get("web.a"); again.Service != d.Service {
			t.Errorf("in cluster %q the service has another pointer in the next context", cluster)
		}
	}
}
