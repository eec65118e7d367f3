package gen

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/internal/memo"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProxyConfigType is how the mesh's trusted authorities reach agents. Source: Istio, pkg/model/xds.go.
const ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// ProxyConfigName is the name of the one resource of type ProxyConfigType.
const ProxyConfigName = "trust-bundle"

// bundles makes the resource that holds the trusted authorities. It depends on nothing but their certificates: a
// revocation sends none anew.
type bundles struct {
	roots  *intern.Lists[string]
	layers *memo.Func[bundleIn, resource.Layer]
}

// bundleIn is everything that the resource depends on.
type bundleIn struct{ roots *intern.List[string] }

func newBundles() bundles {
	return bundles{roots: &intern.Lists[string]{}, layers: memo.New(buildBundle)}
}

// set is empty without a certificate authority.
func (b bundles) set(sc *push.Scope) resource.Set {
	if sc.Trust == nil {
		return resource.Set{}
	}
	return resource.Set{Shared: b.layers.Get(bundleIn{b.roots.Of(sc.Trust.Roots)})}
}

func buildBundle(in bundleIn) *resource.Layer {
	r := resource.New(ProxyConfigType, ProxyConfigName, nil, func() []byte {
		return resource.Encode(&meshconfig.ProxyConfig{CaCertificatesPem: in.roots.Items()})
	})
	return resource.NewLayer([]*resource.Resource{r})
}
