package agent

import (
	"unique"

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

// TrustBundles makes the resource that holds the trusted authorities, resource.BypassedPorts where
// there are any, and what annotations of the workload's group set. It depends on nothing else: a
// revocation sends none anew.
type TrustBundles struct {
	roots intern.Lists[string]
	modes intern.Lists[push.PortMode]
}

// bundleIn is everything that the resource depends on.
type bundleIn struct {
	roots    *intern.List[string]
	bypassed string
	group    string                                    // push.Node.ProxyConfig
	stats    *meshconfig.ProxyConfig_ProxyStatsMatcher // of the whole mesh
	unmerged bool                                      // the mesh forbids to read the application's metrics
}

// Plans implements envoy.Kind. There is nothing without a certificate authority and a group.
func (b *TrustBundles) Plans(sc *push.Scope) (shared, own envoy.Plan) {
	in := bundleIn{}
	if sc.ProxyConfig != (unique.Handle[string]{}) {
		merge := sc.Mesh.Config.GetEnablePrometheusMerge()
		in.group, in.unmerged = sc.ProxyConfig.Value(), merge != nil && !merge.GetValue()
		in.stats = sc.Mesh.Config.GetDefaultConfig().GetProxyStatsMatcher()
	} else if sc.Trust == nil {
		return nil, nil
	}
	if sc.Trust != nil {
		in.roots = b.roots.Of(sc.Trust.Roots)
	}
	if sc.Interception == push.None && sc.Own != nil {
		modes := push.PeerModesOf(sc.PeerAuthentication.Items(), sc.Mesh.Config.GetRootNamespace(), &b.modes)
		in.bypassed = workload.BypassOf(sc, modes).Ports
	}
	return in, nil
}

// Layer implements envoy.Plan.
func (in bundleIn) Layer() *envoy.Layer {
	r := resource.New(ProxyConfigType, ProxyConfigName, nil, func() []byte {
		c := &meshconfig.ProxyConfig{CaCertificatesPem: in.roots.Items(), ProxyStatsMatcher: in.stats,
			ProxyMetadata: map[string]string{}}
		if in.bypassed != "" {
			c.ProxyMetadata[resource.BypassedPorts] = in.bypassed
		}
		if in.unmerged {
			c.ProxyMetadata[resource.ApplicationMetrics] = ""
		}
		// Encoded messages one after another are one message. Lists are joined; what comes last takes
		// precedence.
		return append([]byte(in.group), resource.Encode(c)...)
	})
	return envoy.NewLayer(r)
}
