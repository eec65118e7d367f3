package gen

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/registry"
	"github.com/ashore-mesh/ashore/xds/gen/gentest"
)

// Pods reach the services of their namespace by name alone. Machines do not, so that their
// namespaces share routes.
func TestBareNames(t *testing.T) {
	t.Parallel()
	m := meshOf(t, "")
	for _, host := range []string{"web.shop.svc.cluster.local", "web.other.svc.cluster.local", "db.other.svc.cluster.local"} {
		s := gentest.Service(host, 0, "", "http/80")
		s.Namespace, s.Cluster = strings.Split(host, ".")[1], "east"
		m.inputs.Services = m.inputs.Services.With(s.Key, s)
		m.inputs.Endpoints = m.inputs.Endpoints.With(s.Key, &registry.EndpointList{})
	}
	m.context = push.Build(nil, m.inputs)
	g := New()
	domains := func(namespace, cluster string) string {
		var metadata intern.Lists[push.Label]
		n := testNode(push.Sidecar, namespace)
		n.Metadata = metadata.Of([]push.Label{{Key: "CLUSTER_ID", Value: cluster}})
		var out []string
		for _, vh := range routesOf(t, g, m.context.Scope(m.context.Classify(n)))["80"].VirtualHosts {
			for _, d := range vh.Domains {
				if !strings.Contains(d, ".") {
					out = append(out, d+"="+vh.Name)
				}
			}
		}
		return fmt.Sprint(out)
	}
	for _, c := range []struct{ namespace, cluster, want string }{
		{"shop", "east", "[web=web.shop.svc.cluster.local:80 *=allow_any]"},
		{"other", "east", "[db=db.other.svc.cluster.local:80 web=web.other.svc.cluster.local:80 *=allow_any]"},
		{"third", "east", "[*=allow_any]"},
		{"shop", "Kubernetes", "[*=allow_any]"},
	} {
		if got := domains(c.namespace, c.cluster); got != c.want {
			t.Errorf("namespace %s in cluster %s: %s, want %s", c.namespace, c.cluster, got, c.want)
		}
	}
}
