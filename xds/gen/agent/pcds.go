package agent

import (
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/ashore-mesh/ashore/internal/intern"
	"github.com/ashore-mesh/ashore/push"
	"github.com/ashore-mesh/ashore/xds/gen/envoy"
	"github.com/ashore-mesh/ashore/xds/gen/workload"
	"github.com/ashore-mesh/ashore/xds/resource"
)

// ProxyConfigType is how the mesh's trusted authorities reach agents. Source: Istio,
// pkg/model/xds.go.
const ProxyConfigType = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig"

// ProxyConfigName is the name of the one resource of type ProxyConfigType.
const ProxyConfigName = "trust-bundle"

// BypassedPorts is the member of ProxyConfig.proxyMetadata that tells an agent at which ports of
// its workload connections reach the application past Envoy, "8080, 9090".
const BypassedPorts = "ASHORE_BYPASSED_PORTS"

// TrustBundles makes the resource that holds the trusted authorities, and BypassedPorts where there are
// any. It depends on nothing else: a revocation sends none anew.
type TrustBundles struct {
	roots intern.Lists[string]
	modes intern.Lists[push.PortMode]
}

// bundleIn is everything that the resource depends on.
type bundleIn struct {
	roots    *intern.List[string]
	bypassed string
}

// Plans implements envoy.Kind. There is nothing without a certificate authority.
func (b *TrustBundles) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	if sc.Trust == nil {
		return nil, nil
	}
	in := bundleIn{roots: b.roots.Of(sc.Trust.Roots)}
	if sc.Interception == push.None && sc.Own != nil {
		modes := push.PeerModesOf(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace(), &b.modes)
		in.bypassed = workload.BypassOf(sc, modes).Ports
	}
	return in, nil
}

// Layer implements envoy.Plan.
func (in bundleIn) Layer() *envoy.Layer {
	r := resource.New(ProxyConfigType, ProxyConfigName, nil, func() []byte {
		c := &meshconfig.ProxyConfig{CaCertificatesPem: in.roots.Items()}
		if in.bypassed != "" {
			c.ProxyMetadata = map[string]string{BypassedPorts: in.bypassed}
		}
		return resource.Encode(c)
	})
	return envoy.NewLayer(r)
}
